package hosttest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/report"
)

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

// Commands returns the LVM commands that the driver has run.
func (d *Driver) Commands() []lvm.Command {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.commands)
}

// settling is the beginning of the selection of the command that tags volumes as ready.
const settling = "lv_tags={nodelvm.state=creating} && ("

// IsReadyCommit reports whether a command tags volumes as ready. The driver runs such commands by itself, shortly after it has returned the
// volumes.
func IsReadyCommit(c lvm.Command) bool { return strings.Contains(strings.Join(c.Args, " "), settling) }

// Counted runs do and fails if that took more than atMost LVM commands. It ignores the delayed commands of earlier requests, and those that
// began before: the metadata shows what a command did before the command ends.
func (d *Driver) Counted(t testing.TB, what string, atMost int, do func()) {
	t.Helper()
	d.mu.Lock()
	before, start := len(d.commands), time.Now()
	d.mu.Unlock()
	do()
	d.mu.Lock()
	defer d.mu.Unlock()
	var ran []string
	for i, c := range d.commands[before:] {
		if !IsReadyCommit(c) && d.began[before+i].After(start) {
			ran = append(ran, c.Name+" "+strings.Join(c.Args, " "))
		}
	}
	if len(ran) > atMost {
		t.Errorf("%s took %d LVM commands, want at most %d:\n%s", what, len(ran), atMost, strings.Join(ran, "\n"))
	}
}

// Stop closes the driver, if there is one, and fails if it had to give up the direct read of the disks.
func (d *Driver) Stop(t testing.TB) {
	t.Helper()
	if d == nil {
		return
	}
	if Report(d.Host).MetadataDifference != "" {
		t.Error("the direct read differed from LVM's report; see the log")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	Must(t, d.Close(ctx))
}

// WaitWiped waits until no deleted volume holds extents.
func (d *Driver) WaitWiped(t testing.TB) {
	t.Helper()
	wait.For(t, 2*time.Minute, "no deleted volume holds extents", func() bool {
		inv := Report(d.Host)
		return len(inv.Groups) > 0 && inv.WipeBacklog == 0 && InState(inv, lvm.StateDeleting) == 0
	})
}

// Report returns what a driver reports of its groups: nothing while it cannot read the disks.
func Report(h *host.Host) report.Inventory {
	inv, _ := h.Inventory(context.Background())
	return inv
}

// InState counts the volumes in a state.
func InState(inv report.Inventory, state lvm.VolumeState) (count int) {
	for _, v := range inv.Volumes {
		if v.State == string(state) {
			count++
		}
	}
	return count
}

// MustCreate creates a volume, or fails the test.
func (d *Driver) MustCreate(t testing.TB, spec lvm.Spec) lvm.Volume {
	t.Helper()
	v, err := d.Create(context.Background(), spec)
	Must(t, err)
	return v
}

// MustActivate activates a volume, and so tags it as ready. It returns its device, or fails the test.
func (d *Driver) MustActivate(t testing.TB, v lvm.Volume) (device string) {
	t.Helper()
	_, device, err := d.ActivateAs(t.Context(), v.ID, v.UUID, v.Class.Encryption)
	Must(t, err)
	return device
}

// MustDevice returns a volume's device, or fails the test.
func (d *Driver) MustDevice(t testing.TB, v lvm.Volume) string {
	t.Helper()
	device, _, err := d.Device(t.Context(), v.ID, v.UUID)
	Must(t, err)
	return device
}

// MustExtend extends a volume to a size, or fails the test.
func (d *Driver) MustExtend(t testing.TB, v lvm.Volume, size lvm.Bytes) lvm.Volume {
	t.Helper()
	extended, err := d.Extend(t.Context(), v.ID, size, 0)
	Must(t, err)
	return extended
}

// MustRemove deletes a volume, and waits until its extents are free.
func (d *Driver) MustRemove(t testing.TB, v lvm.Volume) {
	t.Helper()
	Must(t, d.Delete(t.Context(), v.ID))
	d.WaitWiped(t)
}

// Conditions returns what Health finds.
func (d *Driver) Conditions(t testing.TB) []lvm.Condition {
	t.Helper()
	found, err := d.Health(t.Context())
	Must(t, err)
	return found
}

// MustCapacity returns the capacity for a class.
func (d *Driver) MustCapacity(t testing.TB, class lvm.Class) lvm.Capacity {
	t.Helper()
	c, err := d.Capacity(context.Background(), class)
	Must(t, err)
	return c
}

// Volumes lists the volumes of the driver's cluster.
func (d *Driver) Volumes(t testing.TB) []lvm.Volume {
	t.Helper()
	volumes, err := d.List(t.Context())
	Must(t, err)
	return volumes
}

// Snapshots lists the snapshots of the driver's cluster.
func (d *Driver) Snapshots(t testing.TB) []lvm.Snapshot {
	t.Helper()
	snapshots, err := d.ListSnapshots(t.Context())
	Must(t, err)
	return snapshots
}

// MustSnapshot creates a snapshot, or fails the test.
func (d *Driver) MustSnapshot(t testing.TB, name string, source lvm.ID) lvm.Snapshot {
	t.Helper()
	s, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: name, Source: source})
	Must(t, err)
	return s
}

// MustGroupSnapshot takes a group snapshot, or fails the test.
func (d *Driver) MustGroupSnapshot(t testing.TB, spec lvm.GroupSnapshotSpec) lvm.GroupSnapshot {
	t.Helper()
	s, err := d.CreateGroupSnapshot(t.Context(), spec, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil })
	Must(t, err)
	return s
}
