package operations

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestHungCommandBlocksOneVG: while a command does not end, the driver refuses all requests for its group, and only for that one. When it
// ends, the group works again.
func TestHungCommandBlocksOneVG(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	block := hosttest.BlockedRunner{Runner: node.Runner(), Group: "vg-test", Release: make(chan struct{})}
	h := node.HostOn(lvm.Config{Cluster: hosttest.Cluster, LockTimeLimit: time.Second}, lvm.Machine{Runner: block})
	hosttest.Must(t, h.Start(t.Context()))
	hanging := make(chan error, 1)
	go func() {
		_, err := h.Create(context.Background(), b.Spec("hangs", 8*lvm.MiB))
		hanging <- err
	}()
	hung := func() float64 {
		for _, g := range hosttest.Report(h).Groups {
			if g.Name == "vg-test" {
				return g.BlockedSeconds
			}
		}
		return 0
	}
	wait.For(t, time.Minute, "the driver notices a command that exceeds its time limit", func() bool { return hung() > 0 })
	if c, err := h.Capacity(t.Context(), b.Class()); err != nil || c != (lvm.Capacity{}) {
		t.Errorf("the blocked group has the capacity %+v, %v", c, err)
	}
	_, err := h.Create(t.Context(), b.Spec("other", 8*lvm.MiB))
	hosttest.WantKind(t, "create in the blocked group", err, lvm.KindInsufficientCapacity)
	if err != nil && !strings.Contains(err.Error(), "lvcreate") {
		t.Errorf("the error does not name the command: %v", err)
	}
	id := lvm.ID{VG: b.ReadGroup(t).UUID, LV: "any"}
	hosttest.WantKind(t, "delete in the blocked group", h.Delete(t.Context(), id), lvm.KindBusy)
	hosttest.Refused(t, "extension in the blocked group", lvm.KindBusy)(h.Extend(t.Context(), id, lvm.GiB, 0))
	elsewhere := b.Spec("elsewhere", 8*lvm.MiB)
	elsewhere.Class.Group = "vg-other"
	if _, err := h.Create(t.Context(), elsewhere); err != nil {
		t.Errorf("create in another group: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := h.Close(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close while a command does not end: %v", err)
	}
	close(block.Release)
	hosttest.Must(t, <-hanging)
	hosttest.Must(t, h.Close(t.Context()))
	if hung() > 0 {
		t.Error("the group still counts as blocked")
	}
}

// TestLogNamesVG: log lines about a blocked group have its name, and its UUID under another key.
func TestLogNamesVG(t *testing.T) {
	var text bytes.Buffer
	node := hosttest.NewNode()
	block := &hosttest.BlockedRunner{Runner: node.Runner(), Group: "vg-test", Release: make(chan struct{})}
	h := node.HostOn(lvm.Config{Cluster: hosttest.Cluster, LockTimeLimit: 50 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&text, nil))}, lvm.Machine{Runner: block})
	hosttest.Must(t, h.Start(t.Context()))
	made := make(chan error, 2)
	for _, name := range []string{"v", "w"} {
		go func() { _, err := h.Create(t.Context(), hosttest.OnFake(node).Spec(name, 8*lvm.MiB)); made <- err }()
	}
	hosttest.WantKind(t, "a request that waits while the group becomes blocked", <-made, lvm.KindBusy)
	close(block.Release)
	hosttest.Must(t, <-made)
	hosttest.Must(t, h.Close(t.Context()))
	lines := slices.DeleteFunc(strings.Split(text.String(), "\n"), func(line string) bool {
		return !strings.Contains(line, "volume group blocked") && !strings.Contains(line, "no longer blocked")
	})
	if len(lines) != 2 {
		t.Errorf("the log has %d lines about the blocked group: %q", len(lines), lines)
	}
	for _, line := range lines {
		if !strings.Contains(line, " vg=vg-test ") || !strings.Contains(line, " vg_uuid="+string(node.Group("vg-test").UUID)) {
			t.Errorf("the line lacks the group: %s", line)
		}
	}
}
