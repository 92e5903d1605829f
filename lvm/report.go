package lvm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// reportArgs is the one command that tells a State, lvmreport(7). It looks at these devices alone: on others may be groups that
// the owners of volumes made up. Hidden volumes (-a) and groups that are another
// host's or shared are in it, so that their problem can be named; no column that would cost a question to the kernel
// for each volume. LVM does not say in it which PVs have a double: only Disks sees that.
func reportArgs(devices []string) []string {
	return []string{
		"fullreport", devicesOption, strings.Join(devices, ","), "-a", "--foreign", "--shared", "--reportformat", "json", "--units", "b", "--nosuffix", "--binary",
		"--configreport", "vg", "-o", "vg_uuid,vg_name,vg_tags,vg_seqno,vg_extent_size,vg_mda_size,vg_mda_free," +
			"vg_exported,vg_extendable,vg_permissions,vg_clustered,vg_shared,vg_lock_type,vg_systemid",
		"--configreport", "pv", "-o", "pv_uuid,pv_name,pv_pe_count,pv_missing,pv_allocatable,pe_start,dev_size",
		"--configreport", "lv", "-o", "lv_uuid,lv_name,lv_size,lv_tags,lv_time,origin,pool_lv,data_lv,metadata_lv,mirror_log",
		"--configreport", "pvseg", "-o", "pv_uuid,pvseg_start,pvseg_size,segtype,lv_uuid,seg_start_pe",
		"--configreport", "seg", "-o", "lv_uuid,seg_start_pe,seg_size_pe,segtype,stripe_size,region_size,chunk_size,zero," +
			"devices,metadata_devices",
	}
}

// parseReport reads what reportArgs printed. Any group that it cannot read is an error: after it nobody is left to ask.
func parseReport(r io.Reader) (State, error) {
	var raw reportJSON
	if err := json.NewDecoder(r).Decode(&raw); err != nil {
		return State{}, fmt.Errorf("LVM's report is not the JSON that was asked for: %w", err)
	}
	if raw.Report == nil {
		return State{}, errors.New("LVM's report has no \"report\" in it")
	}
	var state State
	for _, item := range raw.Report {
		if len(item.VG) == 0 || item.VG[0].Name == "" { // PVs that are in no group
			continue
		}
		g, err := item.group()
		if err != nil {
			return State{}, fmt.Errorf("LVM's report of volume group %s: %w", item.VG[0].Name, err)
		}
		state.Groups = append(state.Groups, g)
	}
	sortState(&state)
	return state, nil
}

// completedBy adds the groups that only LVM's report could read. What the disks themselves told stays: it knows of
// PVs with a double and of devices that could not be read.
func (s State) completedBy(report State) State {
	for _, g := range report.Groups {
		if !slices.ContainsFunc(s.Groups, func(known Group) bool { return known.UUID == g.UUID }) {
			s.Groups = append(s.Groups, g)
		}
	}
	sortState(&s)
	return s
}

func (item reportGroup) group() (Group, error) {
	vg := item.VG[0]
	g := Group{
		UUID:       string(vg.UUID),
		Name:       string(vg.Name),
		Tags:       vg.Tags,
		Seqno:      int64(vg.Seqno),
		ExtentSize: Bytes(vg.ExtentSize),
		MDASize:    usable(int64(vg.MDASize)),
		MDAFree:    Bytes(vg.MDAFree),
	}
	if !isUUID(g.UUID) || g.ExtentSize <= 0 || g.ExtentSize%sectorSize != 0 || len(item.VG) != 1 {
		return g, fmt.Errorf("UUID %q, extent size %d, %d rows", g.UUID, g.ExtentSize, len(item.VG))
	}
	h := hurdles{
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
	settleGroup(&g)
	if err := g.checkLayers(); err != nil {
		return g, err
	}
	orderMissing(&g)
	return g, nil
}

func (item reportGroup) pvs(g *Group, h *hurdles) error {
	index := map[word]int{}
	for i, row := range item.PV {
		pv := PV{
			UUID:        string(row.UUID),
			Extents:     Extents(row.Extents),
			Missing:     row.Missing != 0,
			Allocatable: row.Allocatable != 0,
		}
		if _, twice := index[row.UUID]; twice || !isUUID(pv.UUID) || pv.Extents > math.MaxUint32 {
			return fmt.Errorf("physical volume %q with %d extents", pv.UUID, pv.Extents)
		}
		if pv.Missing && strings.HasPrefix(string(row.Name), "/") { // else "[unknown]"
			pv.Back = string(row.Name)
		}
		if !pv.Missing {
			pv.Device = string(row.Name)
			needs := Bytes(row.Start) + Bytes(pv.Extents)*g.ExtentSize
			if has := Bytes(row.DeviceSize); has < needs {
				h.shrunken = append(h.shrunken, shrunkenSentence(pv.Device, has, needs))
			}
		}
		index[row.UUID] = i
		g.PVs = append(g.PVs, pv)
	}
	for _, row := range item.PVSeg {
		i, known := index[row.PV]
		if !known {
			return fmt.Errorf("extents of physical volume %q, which is not in the group", row.PV)
		}
		if row.Type == "free" && row.Size > 0 {
			g.PVs[i].Free = append(g.PVs[i].Free, Run{Extents(row.Start), Extents(row.Size)})
		}
	}
	for i := range g.PVs {
		if err := g.PVs[i].mergeRuns(); err != nil {
			return err
		}
	}
	return nil
}

// mergeRuns brings free runs into order and joins neighbours.
func (pv *PV) mergeRuns() error {
	slices.SortFunc(pv.Free, func(a, b Run) int { return int(a.Start - b.Start) })
	var merged []Run
	next := Extents(0)
	for _, run := range pv.Free {
		end := run.Start + run.Count
		if run.Start < next || end > pv.Extents {
			return fmt.Errorf("the free extents %d to %d of physical volume %s cannot be", run.Start, end-1, pv.UUID)
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
