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

// fullreport prints every group with the columns that the driver requests, as lvm 2.03.16 does.
func (n *Node) fullreport() []byte {
	groups := []map[string][]row{}
	for _, g := range n.groups {
		if g.away {
			continue
		}
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
		"vg_uuid": string(g.UUID), "vg_name": string(g.Name), "vg_tags": strings.Join(g.Tags, ","), "vg_seqno": number(g.Seqno),
		"vg_extent_size": number(g.ExtentSize), "vg_mda_size": number(2*g.MDASize + 1536), "vg_mda_free": number(g.MDAFree),
		"vg_exported": "0", "vg_extendable": "1", "vg_permissions": "writeable", "vg_clustered": "0", "vg_shared": "0",
		"vg_lock_type": "", "vg_systemid": "",
	}
}

func (g *group) pvRows() []row {
	rows := []row{}
	for _, pv := range g.PVs {
		missing, allocatable, name := "0", "0", pv.Device
		if pv.Missing {
			if missing, name = "1", pv.ReappearedDevice; name == "" {
				name = "[unknown]"
			}
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
		r := row{
			"lv_uuid": lv.UUID, "lv_name": g.shown(lv.Name), "lv_size": number(lvm.Bytes(lv.Extents) * g.ExtentSize),
			"lv_tags": strings.Join(lv.Tags, ","), "lv_time": lv.Created.Format("2006-01-02 15:04:05 -0700"),
			"origin": lv.Origin, "pool_lv": lv.Pool, "data_lv": "", "metadata_lv": "", "mirror_log": "",
		}
		if lv.Thin != nil {
			r["data_lv"], r["metadata_lv"] = g.shown(lv.Thin.Data), g.shown(lv.Thin.Metadata)
		}
		rows = append(rows, r)
	}
	return rows
}

// shown is a volume's name as reports write it: in brackets if it is hidden.
func (g *group) shown(name string) string {
	if lv := g.find(name); lv != nil && lv.Hidden {
		return "[" + name + "]"
	}
	return name
}

func (g *group) pvsegRows() []row {
	rows := []row{}
	for _, lv := range g.LVs {
		for _, s := range lv.Segments {
			for _, a := range s.Areas {
				if a.PV != "" {
					rows = append(rows, row{"pv_uuid": a.PV, "pvseg_start": number(a.Start), "pvseg_size": number(leg(s)),
						"segtype": s.Type, "lv_uuid": lv.UUID, "seg_start_pe": number(s.Start)})
				}
			}
		}
	}
	for _, pv := range g.PVs {
		for _, r := range g.free(pv) {
			rows = append(rows, row{"pv_uuid": pv.UUID, "pvseg_start": number(r.Start), "pvseg_size": number(r.Count),
				"segtype": "free", "lv_uuid": "", "seg_start_pe": "0"})
		}
	}
	return rows
}

func (g *group) segRows() []row {
	rows := []row{}
	for _, lv := range g.LVs {
		for _, s := range lv.Segments {
			r := row{
				"lv_uuid": lv.UUID, "seg_start_pe": number(s.Start), "seg_size_pe": number(s.Extents), "segtype": s.Type,
				"stripe_size": number(s.StripeSize), "region_size": number(s.RegionSize), "chunk_size": "0", "zero": "-1",
				"devices": g.devices(s.Areas), "metadata_devices": g.devices(s.Metadata),
			}
			if lv.Thin != nil {
				r["chunk_size"], r["devices"], r["zero"] = number(lv.Thin.ChunkSize), lv.Thin.Data+"(0)", "0"
				if lv.Thin.Zero {
					r["zero"] = "1"
				}
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// devices writes legs as reports do: "/dev/sda(12)", "r_rimage_0(0)".
func (g *group) devices(areas []lvm.Area) string {
	words := make([]string, 0, len(areas))
	for _, a := range areas {
		name := a.LV
		for _, pv := range g.PVs {
			if name = a.LV; pv.UUID == a.PV {
				name = pv.Device
				break
			}
		}
		words = append(words, fmt.Sprintf("%s(%d)", name, a.Start))
	}
	return strings.Join(words, ",")
}
