package ondisk

import (
	"context"
	"os"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

func disksOf(n fixture.TestNode) *Disks { return &Disks{Sys: n.Sys, Proc: n.Proc, Dev: n.Dev} }

// plugged is a node with the disks of a captured scenario, and its reader.
func plugged(t testing.TB, scenario string) (fixture.TestNode, *Disks) {
	t.Helper()
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/"+scenario)
	return node, disksOf(node)
}

// readNode reads the node's disks with a new reader.
func readNode(n fixture.TestNode, t testing.TB) lvm.State {
	t.Helper()
	state, err := disksOf(n).Read(context.Background())
	fixture.Must(t, err)
	return state
}

// probesOf returns each disk's probe.
func probesOf(n fixture.TestNode, t testing.TB) []probe {
	t.Helper()
	found, err := new(scanner).scan(context.Background(), n.Sys, n.Proc, n.Dev)
	fixture.Must(t, err)
	var probes []probe
	for _, device := range found.list {
		probes = append(probes, disksOf(n).prober().probe(device, probe{}))
	}
	return probes
}

func readReport(t testing.TB, path string) lvm.State {
	t.Helper()
	f, err := os.Open(path)
	fixture.Must(t, err)
	defer func() { _ = f.Close() }()
	state, err := ParseReport(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return state
}

// captured returns the metadata text on the first disk of a scenario.
func captured(t testing.TB, scenario string) string {
	t.Helper()
	node := fixture.NewTestNode(t)
	node.Plug(t, "testdata/groups/"+scenario)
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
