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

// ParseReport parses the output of lvmcmd.ReportArgs, which is compared with a reading. An invalid number counts as 0, and so as a
// difference.
func ParseReport(r io.Reader) (lvm.State, error) {
	var raw struct {
		Report []reportGroup `json:"report"`
	}
	decoder := json.NewDecoder(r)
	decoder.UseNumber()
	if err := decoder.Decode(&raw); err != nil {
		return lvm.State{}, fmt.Errorf("LVM's report is not valid JSON: %w", err)
	}
	if raw.Report == nil {
		return lvm.State{}, errors.New("LVM's report has no \"report\" in it")
	}
	var state lvm.State
	for _, item := range raw.Report {
		vg := item["vg"]
		if len(vg) == 0 || vg[0].text("vg_name") == "" { // PVs without a group
			continue
		}
		g, err := item.group()
		if err != nil {
			return lvm.State{}, fmt.Errorf("LVM's report of volume group %s: %w", vg[0].text("vg_name"), err)
		}
		state.Groups = append(state.Groups, g)
	}
	sortState(&state)
	return state, nil
}

func (item reportGroup) group() (lvm.Group, error) {
	vg := item["vg"][0]
	g := lvm.Group{
		UUID:       lvm.VGUUID(vg.text("vg_uuid")),
		Name:       lvm.VGName(vg.text("vg_name")),
		Tags:       vg.list("vg_tags"),
		Seqno:      vg.number("vg_seqno"),
		ExtentSize: vg.bytes("vg_extent_size"),
		MDASize:    usable(vg.number("vg_mda_size")),
		MDAFree:    vg.bytes("vg_mda_free"),
	}
	if !IsUUID(string(g.UUID)) || g.ExtentSize <= 0 || g.ExtentSize%lvm.SectorSize != 0 || len(item["vg"]) != 1 {
		return g, fmt.Errorf("UUID %q, extent size %d, %d rows", g.UUID, g.ExtentSize, len(item["vg"]))
	}
	h := restrictions{
		exported: vg.is("vg_exported"),
		shared:   vg.is("vg_clustered") || vg.is("vg_shared") || vg.text("vg_lock_type") != "",
		readOnly: vg.text("vg_permissions") != "writeable",
		fixed:    !vg.is("vg_extendable"),
		systemID: vg.text("vg_systemid"),
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
	index := map[string]int{}
	for i, row := range item["pv"] {
		pv, name := lvm.PV{UUID: row.text("pv_uuid"), Extents: row.extents("pv_pe_count"), Missing: row.is("pv_missing"), Allocatable: row.is("pv_allocatable")}, row.text("pv_name")
		if _, twice := index[pv.UUID]; twice || !IsUUID(pv.UUID) || pv.Extents > math.MaxUint32 {
			return fmt.Errorf("physical volume %q with %d extents", pv.UUID, pv.Extents)
		}
		if pv.Missing && strings.HasPrefix(name, "/") { // else "[unknown]"
			pv.ReappearedDevice = name
		}
		if !pv.Missing {
			pv.Device = name
			needs := row.bytes("pe_start") + lvm.Bytes(pv.Extents)*g.ExtentSize
			if has := row.bytes("dev_size"); has < needs {
				h.shrunken = append(h.shrunken, describeShrunken(pv.Device, has, needs))
			}
		}
		index[pv.UUID] = i
		g.PVs = append(g.PVs, pv)
	}
	for _, row := range item["pvseg"] {
		i, known := index[row.text("pv_uuid")]
		if !known {
			return fmt.Errorf("extents are on physical volume %q, which is not in the group", row.text("pv_uuid"))
		}
		if run := (lvm.Run{Start: row.extents("pvseg_start"), Count: row.extents("pvseg_size")}); row.text("segtype") == "free" && run.Count > 0 {
			g.PVs[i].Free = append(g.PVs[i].Free, run)
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
