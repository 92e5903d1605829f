package simulated

import (
	"strings"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Hostile is a text that runs code in a browser if any program on the way treats it as HTML, a URL or a script.
const Hostile = `"><img src=x onerror="window.hostile=1"><script>window.hostile=1</script><svg onload=window.hostile=1>` + "\u202e'javascript:window.hostile=1"

// AddHostileNode adds a node whose document, objects and events consist of hostile texts and invalid numbers.
func (s *Source) AddHostileNode(name string) {
	long := strings.Repeat(Hostile, 100)
	used := lvm.Bytes(-1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	s.pages[name] = report.Node{Node: Hostile, Version: Hostile, Cluster: Hostile, NotReady: Hostile, Unknown: []string{long},
		Checks: report.Checks{Kernel: Hostile},
		Inventory: report.Inventory{
			Groups: []report.Group{{Name: Hostile, UUID: Hostile, Tags: []string{Hostile}, ExtentSize: extent, Size: -1, Problem: Hostile,
				Pools: []report.Pool{{Name: Hostile + "pool", State: report.PoolState(Hostile), Size: -5, Used: 1 << 62}},
				PVs: []report.PV{{UUID: Hostile, Device: Hostile, Extents: 1000, Allocated: []report.ExtentRange{
					{Start: 0, Count: 500, LV: Hostile}, {Start: 0, Count: 1 << 62, LV: Hostile}, {Start: -4, Count: 2, LV: Hostile}, {Start: 600, Count: 100, LV: long}}}}}},
			Volumes: []report.Volume{{ID: Hostile, UUID: Hostile, Group: Hostile, LV: Hostile, Name: Hostile, Claim: "hostile/" + Hostile, Cluster: Hostile, State: "ready",
				Layout: Hostile, Size: 500 * extent, Used: &used}},
			Snapshots: []report.Snapshot{{ID: "s" + Hostile, Group: Hostile, LV: Hostile + "s", Name: Hostile, State: Hostile, Source: Hostile}},
		},
		Conditions: []report.Condition{{Type: Hostile, Group: Hostile, Volume: Hostile, Text: long}, {Type: Hostile, Group: Hostile, Text: Hostile}},
		Comparison: &report.Comparison{Unreferenced: []report.Unreferenced{{Reason: Hostile, Handle: Hostile, Text: long}}},
	}
	s.objects.Volumes = append(s.objects.Volumes, dashboard.Volume{Name: Hostile, Handle: Hostile, Node: name, Claim: "hostile/" + Hostile, Class: Hostile, Phase: "Bound"})
	s.objects.Pods["hostile/"+Hostile] = []string{Hostile}
	s.objects.Limits = append(s.objects.Limits, Hostile)
	s.events = append(s.events, dashboard.Event{Type: Hostile, Reason: Hostile, Object: Hostile, Message: long})
}
