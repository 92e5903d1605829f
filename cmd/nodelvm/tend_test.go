package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// TestTendTellsOnce: a pool that cannot be enlarged for a while does not fill the log.
func TestTendTellsOnce(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{4 * lvm.GiB}})
	host := node.Start(t, lvm.Config{Cluster: "cluster-1"})
	v, err := host.Create(t.Context(), lvm.Spec{Name: "v", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Overprovision: 200}, Required: 2 * lvm.GiB})
	if err != nil {
		t.Fatal(err)
	}
	path, err := host.Activate(t.Context(), v.ID, v.UUID)
	if err != nil {
		t.Fatal(err)
	}
	node.Fill(path, 900*lvm.MiB)
	var log bytes.Buffer
	c := &caretaker{host: host, log: slog.New(slog.NewTextHandler(&log, nil))}
	broken := func(problem string) { node.Change("vg", func(g *lvm.Group) { g.Problem = problem }) }
	failing := ""
	for _, step := range []struct {
		problem string
		lines   int
	}{{"it is exported", 1}, {"it is exported", 1}, {"its permission is read-only", 2}, {"", 2}, {"", 2}} {
		broken(step.problem)
		failing = c.tend(t.Context(), failing)
		if n := strings.Count(log.String(), "could not be enlarged"); n != step.lines || (failing != "") != (step.problem != "") {
			t.Errorf("%q: %d lines, want %d; %q fails:\n%s", step.problem, n, step.lines, failing, &log)
		}
	}
}
