package lvmtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// Fixture is what Conformance runs on: a node with one volume group of six disks, of at least 20 extents of 4 MiB each, without a
// volume.
type Fixture struct {
	Group string // the group's name
	Tag   string // a tag that only this group has
	// Start starts a driver on the node, as after a restart of its pod. The previous one has been closed by then, and the last
	// one is closed before the test ends.
	Start func(t testing.TB) *Driver
	// Admin runs an LVM command as an admin at the node's console would, and fails the test if the command fails.
	Admin func(t testing.TB, argv ...string)
	// Read reads the disks.
	Read func(t testing.TB) lvm.State
	// Suspended reports whether a device is suspended.
	Suspended func(t testing.TB, device string) bool
	// Spoil makes the group unusable in one of the ways of spoils, until restore.
	Spoil func(t testing.TB, how string) (restore func())
	// Leave leaves a message for the default thin pool, "create VOLUME" or "delete NUMBER", that the pool has counted, as a
	// command does that is interrupted before LVM drops its messages. No volume is active afterwards.
	Leave func(t testing.TB, message string)
	// Lost lists the devices that only the default thin pool has, and those that only LVM has.
	Lost func(t testing.TB) []int
	// Hold opens a device as a pod does.
	Hold func(t testing.TB, device string) (release func())

	last func() *Driver // the driver that started last
}

// Driver is a Host with the LVM commands that it has run.
type Driver struct {
	*host.Host
	mu       sync.Mutex
	commands []lvm.Command
	began    []time.Time // of each of them
}

// Observe is for lvm.Config.
func (d *Driver) Observe(c lvm.Command) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.commands, d.began = append(d.commands, c), append(d.began, time.Now().Add(-c.Duration))
}

// settling is the beginning of the selection of the command that tags volumes as ready: the driver runs that command by itself,
// shortly after it has returned the volumes.
const settling = "lv_tags={nodelvm.state=creating} && ("

// counted runs do and fails if that took more than atMost LVM commands. It ignores the delayed commands of earlier requests, and those that
// began before: the metadata shows what a command did before the command ends.
func (d *Driver) counted(t testing.TB, what string, atMost int, do func()) {
	t.Helper()
	d.mu.Lock()
	before, start := len(d.commands), time.Now()
	d.mu.Unlock()
	do()
	d.mu.Lock()
	defer d.mu.Unlock()
	var ran []string
	for i, c := range d.commands[before:] {
		words := c.Name + " " + strings.Join(c.Args, " ")
		if !strings.Contains(words, settling) && d.began[before+i].After(start) {
			ran = append(ran, words)
		}
	}
	if len(ran) > atMost {
		t.Errorf("%s took %d LVM commands, want at most %d:\n%s", what, len(ran), atMost, strings.Join(ran, "\n"))
	}
}

// Cluster is the cluster UID of a fixture's drivers.
const Cluster = "7e57c1a5-0000-4000-8000-000000000001"

// oneAtATime closes each driver before the next one starts, and when the test ends: a node has one.
func (b Fixture) oneAtATime() Fixture {
	var last *Driver
	start := b.Start
	b.last = func() *Driver { return last }
	b.Start = func(t testing.TB) *Driver {
		t.Helper()
		last.close(t)
		last = start(t)
		t.Cleanup(func() { last.close(t) })
		return last
	}
	return b
}

func (d *Driver) close(t testing.TB) {
	t.Helper()
	if d == nil {
		return
	}
	if d.Metrics().ReaderOff {
		t.Error("the direct read differed from LVM's report; see the log")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, d.Close(ctx))
}

func (b Fixture) spec(name string, size lvm.Bytes) lvm.Spec {
	return lvm.Spec{Name: name, Class: lvm.Class{Group: b.Group, Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, Required: size, Claim: "shop/data-0"}
}

// light is a requested volume that takes no time to delete.
func (b Fixture) light(name string, size lvm.Bytes) lvm.Spec {
	spec := b.spec(name, size)
	spec.Class.Wipe = lvm.WipeNone
	return spec
}

func (b Fixture) class() lvm.Class { return b.spec("", 0).Class }

// cleanUp deletes every volume and checks that all extents are free again: nothing leaks.
func (b Fixture) cleanUp(t *testing.T) {
	d := b.last()
	b.deleteAll(t, d)
	for _, g := range d.Metrics().Groups {
		if string(g.Name) == b.Group && g.Free != g.Size {
			t.Errorf("with every volume deleted, group %s has %s free of %s", g.Name, g.Free, g.Size)
		}
	}
}

// waitWiped waits until no deleted volume holds extents.
func (d *Driver) waitWiped(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		m := d.Metrics()
		if len(m.Groups) > 0 && m.WipeBacklog == 0 && m.Volumes[lvm.StateDeleting] == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("deleted volumes still hold extents: %+v", m)
		}
		time.Sleep(pause)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t testing.TB, what string, err error, kind lvm.Kind) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want kind %d", what, kind)
	} else if lvm.KindOf(err) != kind {
		t.Errorf("%s: kind %d, want %d: %v", what, lvm.KindOf(err), kind, err)
	}
}

func (d *Driver) create(t testing.TB, spec lvm.Spec) lvm.Volume {
	t.Helper()
	v, err := d.Create(context.Background(), spec)
	must(t, err)
	return v
}

func (d *Driver) capacity(t testing.TB, class lvm.Class) lvm.Capacity {
	t.Helper()
	c, err := d.Capacity(context.Background(), class)
	must(t, err)
	return c
}
