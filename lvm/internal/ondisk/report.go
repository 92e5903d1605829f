package ondisk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// ParseReport parses the output of ReportArgs. A group that it cannot read is an error, because there is no other reader.
func ParseReport(r io.Reader) (lvm.State, error) {
	var raw reportJSON
	if err := json.NewDecoder(r).Decode(&raw); err != nil {
		return lvm.State{}, fmt.Errorf("LVM's report is not valid JSON: %w", err)
	}
	if raw.Report == nil {
		return lvm.State{}, errors.New("LVM's report has no \"report\" in it")
	}
	var state lvm.State
	for _, item := range raw.Report {
		if len(item.VG) == 0 || item.VG[0].Name == "" { // PVs without a group
			continue
		}
		g, err := item.group()
		if err != nil {
			return lvm.State{}, fmt.Errorf("LVM's report of volume group %s: %w", item.VG[0].Name, err)
		}
		state.Groups = append(state.Groups, g)
	}
	sortState(&state)
	return state, nil
}

func (item reportGroup) group() (lvm.Group, error) {
	vg := item.VG[0]
	g := lvm.Group{
		UUID:       lvm.VGUUID(vg.UUID),
		Name:       lvm.VGName(vg.Name),
		Tags:       vg.Tags,
		Seqno:      int64(vg.Seqno),
		ExtentSize: lvm.Bytes(vg.ExtentSize),
		MDASize:    usable(int64(vg.MDASize)),
		MDAFree:    lvm.Bytes(vg.MDAFree),
	}
	if !IsUUID(string(g.UUID)) || g.ExtentSize <= 0 || g.ExtentSize%lvm.SectorSize != 0 || len(item.VG) != 1 {
		return g, fmt.Errorf("UUID %q, extent size %d, %d rows", g.UUID, g.ExtentSize, len(item.VG))
	}
	h := restrictions{
		exported: vg.Exported != 0,
		shared:   vg.Clustered != 0 || vg.Shared != 0 || vg.LockType != "",
		readOnly: vg.Permissions != "writeable",
		fixed:    vg.Extendable == 0,
		systemID: string(vg.SystemID),
	}
	if err := item.pvs(&g, &h); err != nil {
		return g, err
	}
	if err := item.lvs(&g); err != nil {
		return g, err
	}
	g.Closed, g.Problem = h.closed(), h.problem(g.Name)
	normalizeGroup(&g)
	if err := checkLayers(&g); err != nil {
		return g, err
	}
	orderMissing(&g)
	return g, nil
}

func (item reportGroup) pvs(g *lvm.Group, h *restrictions) error {
	index := map[word]int{}
	for i, row := range item.PV {
		pv := lvm.PV{
			UUID:        string(row.UUID),
			Extents:     lvm.Extents(row.Extents),
			Missing:     row.Missing != 0,
			Allocatable: row.Allocatable != 0,
		}
		if _, twice := index[row.UUID]; twice || !IsUUID(pv.UUID) || pv.Extents > math.MaxUint32 {
			return fmt.Errorf("physical volume %q with %d extents", pv.UUID, pv.Extents)
		}
		if pv.Missing && strings.HasPrefix(string(row.Name), "/") { // else "[unknown]"
			pv.ReappearedDevice = string(row.Name)
		}
		if !pv.Missing {
			pv.Device = string(row.Name)
			needs := lvm.Bytes(row.Start) + lvm.Bytes(pv.Extents)*g.ExtentSize
			if has := lvm.Bytes(row.DeviceSize); has < needs {
				h.shrunken = append(h.shrunken, describeShrunken(pv.Device, has, needs))
			}
		}
		index[row.UUID] = i
		g.PVs = append(g.PVs, pv)
	}
	for _, row := range item.PVSeg {
		i, known := index[row.PV]
		if !known {
			return fmt.Errorf("extents are on physical volume %q, which is not in the group", row.PV)
		}
		if row.Type == "free" && row.Size > 0 {
			g.PVs[i].Free = append(g.PVs[i].Free, lvm.Run{Start: lvm.Extents(row.Start), Count: lvm.Extents(row.Size)})
		}
	}
	for i := range g.PVs {
		if err := mergeRuns(&g.PVs[i]); err != nil {
			return err
		}
	}
	return nil
}

// mergeRuns sorts free runs and joins adjacent ones. It refuses runs that overlap or exceed the PV.
func mergeRuns(pv *lvm.PV) error {
	slices.SortFunc(pv.Free, func(a, b lvm.Run) int { return int(a.Start - b.Start) })
	var merged []lvm.Run
	next := lvm.Extents(0)
	for _, run := range pv.Free {
		end := run.Start + run.Count
		if run.Start < next || end > pv.Extents {
			return fmt.Errorf("the free extents %d to %d of physical volume %s are impossible", run.Start, end-1, pv.UUID)
		}
		if last := len(merged) - 1; last >= 0 && run.Start == next {
			merged[last].Count += run.Count
		} else {
			merged = append(merged, run)
		}
		next = end
	}
	pv.Free = merged
	return nil
}
