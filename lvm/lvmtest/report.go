package lvmtest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// row is one line of a report: every value is a string, as in LVM's `json` format.
type row map[string]string

// fullreport prints every group with the columns that the driver asks for, as lvm 2.03.16 does.
func (n *Node) fullreport() []byte {
	groups := []map[string][]row{}
	for _, g := range n.groups {
		groups = append(groups, map[string][]row{
			"vg": {g.row()}, "pv": g.pvRows(), "lv": g.lvRows(), "pvseg": g.pvsegRows(), "seg": g.segRows(),
		})
	}
	report, err := json.MarshalIndent(map[string]any{"report": groups}, "  ", "    ")
	if err != nil {
		panic(err) // strings always marshal
	}
	return report
}

func number[N ~int64](n N) string { return strconv.FormatInt(int64(n), 10) }

func (g *group) row() row {
	return row{
		"vg_uuid": g.UUID, "vg_name": g.Name, "vg_tags": strings.Join(g.Tags, ","), "vg_seqno": number(g.Seqno),
		"vg_extent_size": number(g.ExtentSize), "vg_mda_size": number(2*g.MDASize + 512), "vg_mda_free": number(g.MDAFree),
		"vg_exported": "0", "vg_extendable": "1", "vg_permissions": "writeable", "vg_clustered": "0", "vg_shared": "0",
		"vg_lock_type": "", "vg_systemid": "",
	}
}

func (g *group) pvRows() []row {
	rows := []row{}
	for _, pv := range g.PVs {
		missing, allocatable, name := "0", "0", pv.Device
		if pv.Missing {
			missing, name = "1", "[unknown]"
		}
		if pv.Allocatable {
			allocatable = "1"
		}
		rows = append(rows, row{
			"pv_uuid": pv.UUID, "pv_name": name, "pv_pe_count": number(pv.Extents), "pv_missing": missing,
			"pv_allocatable": allocatable, "pe_start": number(lvm.MiB), "dev_size": number(lvm.Bytes(pv.Extents)*g.ExtentSize + lvm.MiB),
		})
	}
	return rows
}

func (g *group) lvRows() []row {
	rows := []row{}
	for _, lv := range g.LVs {
		rows = append(rows, row{
			"lv_uuid": lv.UUID, "lv_name": lv.Name, "lv_size": number(lvm.Bytes(lv.Extents) * g.ExtentSize),
			"lv_tags": strings.Join(lv.Tags, ","), "origin": "", "pool_lv": "", "data_lv": "", "metadata_lv": "", "mirror_log": "",
		})
	}
	return rows
}

func (g *group) pvsegRows() []row {
	rows := []row{}
	for _, s := range g.segments {
		rows = append(rows, row{"pv_uuid": s.pv, "pvseg_start": number(s.Start), "pvseg_size": number(s.Count), "segtype": "linear"})
	}
	for _, pv := range g.PVs {
		for _, r := range g.free(pv) {
			rows = append(rows, row{"pv_uuid": pv.UUID, "pvseg_start": number(r.Start), "pvseg_size": number(r.Count), "segtype": "free"})
		}
	}
	return rows
}

func (g *group) segRows() []row {
	rows := []row{}
	for _, lv := range g.LVs {
		at := lvm.Extents(0)
		for _, s := range g.segments {
			if s.lv != lv.UUID {
				continue
			}
			for _, pv := range g.PVs {
				if pv.UUID == s.pv {
					rows = append(rows, row{
						"lv_uuid": lv.UUID, "seg_start_pe": number(at), "segtype": "linear",
						"devices": fmt.Sprintf("%s(%d)", pv.Device, s.Start), "metadata_devices": "",
					})
				}
			}
			at += s.Count
		}
	}
	return rows
}
