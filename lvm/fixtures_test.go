package lvm

import (
	"context"
	"os"
	"testing"
)

func disksOf(n testNode) *Disks { return &Disks{Sys: n.sys, Proc: n.proc, Dev: n.dev} }

// readNode reads the node's disks with a reader that remembers nothing.
func readNode(n testNode, t testing.TB) State {
	t.Helper()
	state, err := disksOf(n).Read(context.Background())
	must(t, err)
	return state
}

// probesOf answers what each disk says.
func probesOf(n testNode, t testing.TB) []probe {
	t.Helper()
	found, err := new(scanner).scan(context.Background(), n.sys, n.proc, n.dev)
	must(t, err)
	var probes []probe
	for _, device := range found.list {
		probes = append(probes, disksOf(n).prober().probe(device, probe{}))
	}
	return probes
}

func readReport(t testing.TB, path string) State {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	defer func() { _ = f.Close() }()
	state, err := parseReport(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return state
}

// captured answers the metadata text on the first disk of a scenario.
func captured(t testing.TB, scenario string) string {
	t.Helper()
	node := newTestNode(t)
	node.plug(t, "testdata/groups/"+scenario)
	for _, p := range probesOf(node, t) {
		for _, a := range p.areas {
			if a.text != nil {
				return a.text.text
			}
		}
	}
	t.Fatalf("%s holds no metadata", scenario)
	return ""
}
