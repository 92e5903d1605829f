package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestRepairedGroupIsNotReported until disks are looked for again, minutes later.
func TestRepairedGroupIsNotReported(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{4 * lvm.GiB, 4 * lvm.GiB}})
	host := node.Start(t, lvm.Config{Cluster: "cluster-1"})
	file := filepath.Join(t.TempDir(), "groups.yaml")
	must(t, os.WriteFile(file, []byte(`volumeGroups: [{name: vg, devices: [{paths: ["/dev/fake*"]}]}]`), 0o600))
	c := &maintenance{host: host, file: file, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	missing := func(is bool) { node.Change("vg", func(g *lvm.Group) { g.PVs[1].Missing = is }) }
	told := func() string {
		t.Helper()
		findings, err := c.Health(t.Context())
		must(t, err)
		var texts []string
		for _, f := range findings {
			texts = append(texts, f.Text)
		}
		return strings.Join(texts, "\n")
	}
	for range 2 { // it may be missing more than once
		missing(true)
		c.prepare(t.Context())
		if text := told(); !strings.Contains(text, "is missing: reconnect its disk") {
			t.Fatalf("told of a group without a disk: %q", text)
		}
		missing(false)
		for deadline := time.Now().Add(wait.Limit(10 * time.Second)); told() != ""; time.Sleep(10 * time.Millisecond) { // a reading of the disks is kept for a moment
			if time.Now().After(deadline) {
				t.Fatalf("told of a group that is repaired: %q", told())
			}
		}
	}
}

// TestPoolExtensionFailureIsLoggedOnce: a pool that cannot be enlarged for a while does not fill the log.
func TestPoolExtensionFailureIsLoggedOnce(t *testing.T) {
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{4 * lvm.GiB}})
	host := node.Start(t, lvm.Config{Cluster: "cluster-1"})
	v, err := host.Create(t.Context(), lvm.Spec{Name: "v", Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin, Overprovision: 200}, Required: 2 * lvm.GiB})
	must(t, err)
	path, err := host.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	node.Fill(path, 900*lvm.MiB)
	var log bytes.Buffer
	c := &maintenance{host: host, log: slog.New(slog.NewTextHandler(&log, nil))}
	broken := func(problem string) { node.Change("vg", func(g *lvm.Group) { g.Problem = problem }) }
	failing := ""
	for _, step := range []struct {
		problem string
		lines   int
	}{{"it is exported", 1}, {"it is exported", 1}, {"its permission is read-only", 2}, {"", 2}, {"", 2}} {
		broken(step.problem)
		failing = c.extendPools(t.Context(), failing)
		if n := strings.Count(log.String(), "cannot extend a thin pool"); n != step.lines || (failing != "") != (step.problem != "") {
			t.Errorf("%q: %d lines, want %d; %q fails:\n%s", step.problem, n, step.lines, failing, &log)
		}
	}
}
