package lvm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestFormerCommand: a new driver waits for the command that a killed one has left behind, and only in that group.
func TestFormerCommand(t *testing.T) {
	dir := t.TempDir()
	script, end := filepath.Join(dir, "lvm"), filepath.Join(dir, "end")
	// What goes on behind the script has its standard input, as lvm itself has it when the driver is killed.
	must(t, os.WriteFile(script, []byte("#!/bin/sh\nexec 3<&0\n(while ! test -e "+end+"; do sleep 0.01; done) >/dev/null 2>&1 &\n"), 0o700))
	killed := &commandFiles{dir: dir}
	must(t, killed.take(t.Context(), "vg"))
	_, err := command{path: script, files: killed}.Run(t.Context(), []string{"lvcreate", "-n", "v", "--", "vg"})
	must(t, err)
	killed.release() // as the kernel does when the driver dies

	next := &commandFiles{dir: dir}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := next.take(short, "vg"); !errors.Is(err, context.DeadlineExceeded) || KindOf(err) != KindBusy {
		t.Errorf("with the command under way the group is taken: %v", err)
	}
	must(t, next.take(t.Context(), "other"))
	must(t, os.WriteFile(end, nil, 0o600))
	must(t, next.take(t.Context(), "vg"))
	must(t, next.take(t.Context(), "vg"))
	next.release()
}

func TestGroupOf(t *testing.T) {
	for want, argv := range map[string][]string{
		"vg":  {"lvcreate", "-y", "-n", "v", "--", "vg", "/dev/sda:0-1"},
		"vg2": {"lvchange", "-ay", "--", "vg2/v", "vg2/w"},
		"":    {"lvs", "--"},
	} {
		if got := groupOf(argv); got != want {
			t.Errorf("%q names the group %q, want %q", argv, got, want)
		}
	}
}

// TestReservationsShow: room that is kept, and that is kept no longer, shows at once, however old the disks' answer may be.
func TestReservationsShow(t *testing.T) {
	g := testGroup("vg-data", []Run{{0, 100}})
	h := NewHostOn(Config{Freshness: time.Hour}, Machine{})
	h.glance.keep(State{Groups: []Group{g}}, time.Now().Add(time.Hour), 0)
	spec := func(name string, extents int) Spec {
		return Spec{Name: name, Class: Class{Group: "vg-data"}, Required: Bytes(extents) * g.ExtentSize}
	}
	shows := func(extents Extents) {
		t.Helper()
		if c, err := h.Capacity(t.Context(), Class{Group: "vg-data"}); err != nil || c.Largest != g.bytes(extents) {
			t.Errorf("%s of %s are shown, %v", c.Largest, g.bytes(extents), err)
		}
	}
	shows(100)
	_, err := h.reserved.plan(State{Groups: []Group{g}}, testCluster, newParty(spec("a", 40), []Spec{spec("b", 50)}), true)
	must(t, err)
	shows(10) // a is being made
	h.reserved.drop(spec("a", 40))
	shows(50)
	kept := h.reserved.kept["b"]
	kept.until = time.Now().Add(-time.Nanosecond)
	h.reserved.kept["b"] = kept
	shows(100)
}

// TestCloseWaitsForTheCaretaker: the node is not left to the next driver while disks are prepared or pools enlarged.
func TestCloseWaitsForTheCaretaker(t *testing.T) {
	h := NewHostOn(Config{LockDir: t.TempDir()}, Machine{})
	must(t, h.Alone(t.Context()))
	leave, err := h.enter()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Close(ctx); err == nil {
		t.Error("the Host closes while somebody is at work")
	}
	if other, err := lockInstance(ctx, h.cfg.LockDir); err == nil {
		other.release()
		t.Error("another driver may begin")
	}
	_, prepared := h.Prepare(t.Context(), Preparation{})
	for _, err := range []error{prepared, h.TendPools(t.Context())} {
		if KindOf(err) != KindBusy {
			t.Errorf("begun while the Host closes: %v", err)
		}
	}
	leave()
	must(t, h.Close(t.Context()))
}

// TestOneDriverANode: the second one waits until the first has ended.
func TestOneDriverANode(t *testing.T) {
	dir := t.TempDir()
	first, err := lockInstance(t.Context(), dir)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := lockInstance(ctx, dir); KindOf(err) != KindBusy || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second driver: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, first.release)
	second, err := lockInstance(t.Context(), dir)
	must(t, err)
	second.release()
}
