//go:build realfs

package luks

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

var errStopped = errors.New("the driver was killed here")

// stopping is a machine on which the driver is killed before or after its n-th change.
type stopping struct {
	linux
	left  *int
	after bool
}

func (s stopping) change(do func() error) error {
	*s.left--
	switch {
	case *s.left > 0:
		return do()
	case *s.left == 0 && s.after:
		return errors.Join(do(), errStopped)
	}
	return errStopped
}

func (s stopping) writeMark(v Volume, m Mark) error {
	return s.change(func() error { return s.linux.writeMark(v, m) })
}

func (s stopping) clearMapping(m Mapping) error {
	return s.change(func() error { return s.linux.clearMapping(m) })
}

func (s stopping) removeMapping(ctx context.Context, name string) error {
	return s.change(func() error { return s.linux.removeMapping(ctx, name) })
}

func (s stopping) destroySlots(v Volume) error {
	return s.change(func() error { return s.linux.destroySlots(v) })
}

func (s stopping) suspend(name string, stop bool) error {
	return s.change(func() error { return s.linux.suspend(name, stop) })
}

func (s stopping) cryptsetup(ctx context.Context, lock *os.File, args []string, keys ...*Key) error {
	return s.change(func() error { return s.linux.cryptsetup(ctx, lock, args, keys...) })
}

// atEachStep calls work with a driver that is killed at the first change, at the second one, and so on, and calls is after each. It
// ends when work completes without a kill.
func atEachStep(b *bench, work func(m *Manager) error, is func()) {
	b.t.Helper()
	for n := 1; ; n++ {
		for _, after := range []bool{false, true} {
			left := n
			m := New(nil)
			m.machine = stopping{left: &left, after: after}
			err := work(m)
			if err == nil {
				if n == 1 {
					b.t.Fatal("no change was stopped")
				}
				b.t.Logf("stopped at each of %d changes", n-1)
				return
			}
			if !errors.Is(err, errStopped) {
				b.t.Fatalf("stopped at change %d: %v", n, err)
			}
			is()
		}
	}
}

func TestRealFormatStoppedAtEachStep(t *testing.T) {
	b := newBench(t)
	r := request(b.volume("stop"), Keys{Current: randomKey(t)})
	formatStopped(b, r, r)
}

// TestRealFormatStoppedThenMoved: the volume moves to another node before its next stage.
func TestRealFormatStoppedThenMoved(t *testing.T) {
	b := newBench(t)
	r := request(b.volume("stop"), Keys{Current: randomKey(t)})
	there := r
	there.Volume = NewVolume(r.Handle, "uuid of the copy", r.Device)
	there.Moved, there.Copied = true, true
	formatStopped(b, r, there)
}

// formatStopped stops the first stage at each change, and expects the next one, on the same or another node, to complete it.
func formatStopped(b *bench, first, next Request) {
	b.t.Helper()
	t := b.t
	atEachStep(b, func(m *Manager) error {
		_, err := m.Stage(t.Context(), first)
		return err
	}, func() {
		if next.Moved {
			b.unstage(first.Handle)
		}
		device := b.stage(next)
		if err := blank(device)(t.Context()); err != nil {
			t.Errorf("the new mapping: %v", err)
		}
		b.write(device, content)
		b.unstage(next.Handle)
		b.expectContent(b.stage(next), content) // not formatted a second time
		b.unstage(next.Handle)
		b.run("dd", "if=/dev/zero", "of="+next.Device, "bs=1M", "conv=fsync", "status=none", "count=56")
	})
}

func TestRealRotationStoppedAtEachStep(t *testing.T) {
	b := newBench(t)
	v := b.volume("rotate")
	old := randomKey(t)
	b.write(b.stage(request(v, Keys{Current: old})), content)
	rescue := randomKey(t) // an admin's key
	must(t, b.machine.cryptsetup(t.Context(), b.lockOf(v), addKeyArgs(v, rescue), old, rescue))
	next := randomKey(t)
	r := request(v, Keys{Current: next, Previous: old})
	atEachStep(b, func(m *Manager) error {
		_, err := m.Stage(t.Context(), r)
		return err
	}, func() {
		if !b.opens(v, old) && !b.opens(v, next) {
			t.Error("neither the old nor the new key opens the volume")
		}
		b.stage(r)
		if b.opens(v, old) || !b.opens(v, next) || !b.opens(v, rescue) {
			t.Error("after a rotation, the old key opens the volume, or the new or the admin's does not")
		}
		if _, _, open, err := b.Mapping(v.Handle); err != nil || !open || !b.isHealthy(v, 2) {
			t.Errorf("after a rotation: open %t, %v", open, err)
		}
		b.unstage(v.Handle)
		b.expectContent(b.stage(r), content)
		b.unstage(v.Handle)
		old, next = next, randomKey(t)
		r.Keys = Keys{Current: next, Previous: old}
	})
}

func (b *bench) lockOf(v Volume) *os.File {
	b.t.Helper()
	file, err := os.Open(v.Device)
	must(b.t, err)
	b.t.Cleanup(func() { _ = file.Close() })
	return file
}

func TestRealEraseStoppedAtEachStep(t *testing.T) {
	b := newBench(t)
	v := b.volume("erase")
	r := request(v, Keys{Current: randomKey(t)})
	b.stage(r)
	began := time.Now()
	atEachStep(b, func(m *Manager) error { return m.Erase(t.Context(), v) }, func() {
		must(t, b.Erase(t.Context(), v))
		if b.opens(v, r.Keys.Current) {
			t.Error("the key opens an erased volume")
		}
		_, err := b.Stage(t.Context(), r)
		expectKind(t, err, lvm.KindConflict, "were destroyed")
		b.run("dd", "if=/dev/zero", "of="+v.Device, "bs=1M", "conv=fsync", "status=none", "count=56")
		b.stage(r)
	})
	t.Logf("%s", time.Since(began))
	for range 2 {
		must(t, b.Erase(t.Context(), v))
	}
}

func TestRealOpenStoppedAtEachStep(t *testing.T) {
	b := newBench(t)
	v := b.volume("open")
	r := request(v, Keys{Current: randomKey(t)})
	b.write(b.stage(r), content)
	b.unstage(v.Handle)
	atEachStep(b, func(m *Manager) error {
		_, err := m.Stage(t.Context(), r)
		return err
	}, func() {
		b.expectContent(b.stage(r), content)
		b.unstage(v.Handle)
	})
}

func TestRealExpansionStoppedAtEachStep(t *testing.T) {
	b := newBench(t)
	v := b.volume("expand")
	r := request(v, Keys{Current: randomKey(t)})
	b.write(b.stage(r), content)
	grow := func() { b.run("lvextend", "-qq", "-L", "+4m", group+"/expand") }
	grow()
	atEachStep(b, func(m *Manager) error {
		_, _, err := m.Expand(t.Context(), r)
		return err
	}, func() {
		device, before, err := b.Expand(t.Context(), r)
		must(t, err)
		b.expectContent(device, content)
		grow()
		if _, after, err := b.Expand(t.Context(), r); err != nil || after != before+4*lvm.MiB {
			t.Fatalf("it had %s and has %s: %v", before, after, err)
		}
		grow()
	})
}

// killing returns a machine that kills each command with SIGKILL some time after its start.
func killing(wait func() time.Duration) (m linux, killed *int) {
	killed = new(int)
	m.runCommand = func(cmd *exec.Cmd) error {
		if err := cmd.Start(); err != nil {
			return err
		}
		timer := time.AfterFunc(wait(), func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err != nil && cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			*killed++
		}
		return err
	}
	return m, killed
}

// TestRealKilledCryptsetup kills cryptsetup at random moments of a format, an open, a rotation and a resize.
func TestRealKilledCryptsetup(t *testing.T) {
	count := 10
	if text := os.Getenv("NODELVM_TEST_KILLS"); text != "" {
		var err error
		if count, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	b := newBench(t)
	longest := map[string]time.Duration{} // measured on an undisturbed volume
	calm := b.volume("calm")
	first, second := randomKey(t), randomKey(t)
	b.stage(request(calm, Keys{Current: first}))
	b.stage(request(calm, Keys{Current: second, Previous: first}))
	b.run("lvextend", "-qq", "-L", "+4m", group+"/calm")
	b.stage(request(calm, Keys{Current: second}))
	for _, c := range b.commands {
		t.Logf("%s: %s, %s", c.name, c.duration, c.maxMemory)
		longest[c.name] = max(longest[c.name], c.duration)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range count {
		b.killRound(round, longest, rng)
	}
}

func (b *bench) killRound(round int, longest map[string]time.Duration, rng *rand.Rand) {
	t := b.t
	name := "kill" + strconv.Itoa(round)
	v := b.volume(name)
	keys := Keys{Current: randomKey(t)}
	victim := New(nil)
	var running string
	m, killed := killing(func() time.Duration { return time.Duration(rng.Int64N(int64(longest[running]) + 1)) })
	inner := m.runCommand
	m.runCommand = func(cmd *exec.Cmd) error {
		running = cmd.Args[1]
		return inner(cmd)
	}
	victim.machine = m
	attempt := func(what string, r Request) {
		t.Helper()
		before := *killed
		_, err := victim.Stage(t.Context(), r)
		if err != nil && *killed == before {
			t.Fatalf("round %d, %s: nothing was killed: %v", round, what, err)
		}
	}
	for range 3 { // also kill formats that follow a killed one
		attempt("format", request(v, keys))
	}
	device := b.stage(request(v, keys))
	if err := blank(device)(t.Context()); err != nil {
		t.Errorf("the new mapping: %v", err)
	}
	b.write(device, content)
	old := keys.Current
	keys = Keys{Current: randomKey(t), Previous: old}
	for range 3 {
		attempt("rotation", request(v, keys))
		if !b.opens(v, keys.Current) && !b.opens(v, keys.Previous) {
			t.Fatalf("round %d: no key opens the volume", round)
		}
	}
	b.stage(request(v, keys))
	if b.opens(v, old) {
		t.Errorf("round %d: the old key opens the volume after its rotation", round)
	}
	b.run("lvextend", "-qq", "-L", "+4m", group+"/"+name)
	attempt("resize", request(v, keys))
	b.expectContent(b.stage(request(v, keys)), content)
	b.unstage(v.Handle)
	for range 3 {
		attempt("open", request(v, keys))
		b.unstage(v.Handle)
	}
	b.expectContent(b.stage(request(v, keys)), content)
	must(t, b.Recover(t.Context()))
	if table := b.run("dmsetup", "info", "-c", "--noheadings", "-o", "name,tables_loaded"); strings.Contains(table, "None") {
		t.Errorf("round %d: mappings without a table: %s", round, table)
	}
	t.Logf("round %d: killed %d commands", round, *killed)
}
