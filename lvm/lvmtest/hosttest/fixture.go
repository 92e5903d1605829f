package hosttest

import (
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// Fixture is what tests of a driver run on: a node with one volume group of six disks, of at least 20 extents of 4 MiB each, without a
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
	// TakesNoWrites reports whether a volume's device is read-only.
	TakesNoWrites func(t testing.TB, device string) bool
	// Write writes to a volume's device, so often, in different places.
	Write func(t testing.TB, device string, count int)
	// Spoil makes the group unusable in one of the ways that package conformance lists, until restore.
	Spoil func(t testing.TB, how string) (restore func())
	// Leave leaves a message for the default thin pool, "create VOLUME" or "delete NUMBER", that the pool has counted, as a
	// command does that is interrupted before LVM drops its messages. No volume is active afterwards.
	Leave func(t testing.TB, message string)
	// Lost lists the devices that only the default thin pool has, and those that only LVM has.
	Lost func(t testing.TB) []int
	// Hold opens a device as a pod does.
	Hold func(t testing.TB, device string) (release func())
	// Bind binds a device node at a path, as NodePublishVolume does for a raw block volume.
	Bind func(t testing.TB, device string) (release func())

	last func() *Driver // the driver that started last
}

// Cluster is the cluster UID of a fixture's drivers.
const Cluster = "7e57c1a5-0000-4000-8000-000000000001"

// OneAtATime closes each driver before the next one starts, and when the test ends: a node has one.
func (b Fixture) OneAtATime() Fixture {
	var last *Driver
	start := b.Start
	b.last = func() *Driver { return last }
	b.Start = func(t testing.TB) *Driver {
		t.Helper()
		last.Stop(t)
		last = start(t)
		t.Cleanup(func() { last.Stop(t) })
		return last
	}
	return b
}

// Last returns the driver that started last: nil before the first one.
func (b Fixture) Last() *Driver { return b.last() }

// Spec is a requested linear volume.
func (b Fixture) Spec(name string, size lvm.Bytes) lvm.Spec {
	return lvm.Spec{Name: name, Class: lvm.Class{Group: b.Group, Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero}, Required: size, Claim: "shop/data-0"}
}

// Light is a requested linear volume that takes no time to delete.
func (b Fixture) Light(name string, size lvm.Bytes) lvm.Spec {
	spec := b.Spec(name, size)
	spec.Class.Wipe = lvm.WipeNone
	return spec
}

// Class is the class of Spec.
func (b Fixture) Class() lvm.Class { return b.Spec("", 0).Class }

// CleanUp deletes every volume and checks that all extents are free again: nothing leaks.
func (b Fixture) CleanUp(t *testing.T) {
	d := b.Last()
	b.DeleteAll(t, d)
	for _, g := range Report(d.Host).Groups {
		if string(g.Name) == b.Group && g.Free != g.Size {
			t.Errorf("with every volume deleted, group %s has %s free of %s", g.Name, g.Free, g.Size)
		}
	}
}

// In completes a class for this group.
func (b Fixture) In(class lvm.Class) lvm.Class {
	class.Group = b.Group
	if class.Wipe == "" && class.Layout != lvm.LayoutThin {
		class.Wipe = lvm.WipeZero
	}
	return class
}

// ReadGroup reads the group from the disks.
func (b Fixture) ReadGroup(t testing.TB) lvm.Group {
	t.Helper()
	s := b.Read(t)
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return string(g.Name) == b.Group })
	if i < 0 {
		t.Fatalf("there is no group %s", b.Group)
	}
	return s.Groups[i]
}

// Thin is a requested thin volume, perhaps with a source.
func (b Fixture) Thin(name string, size lvm.Bytes, source lvm.ID) lvm.Spec {
	class := b.In(lvm.Class{Layout: lvm.LayoutThin, Pool: lvm.DefaultPool, Overprovision: 400})
	return lvm.Spec{Name: name, Class: class, Required: size, Source: source}
}

// RemovePool removes the thin pool as an admin would: the driver keeps it for the next volume.
func (b Fixture) RemovePool(t *testing.T) { b.Admin(t, "lvremove", "-y", b.Group+"/"+lvm.DefaultPool) }

// DeleteAll deletes all volumes and snapshots of this driver.
func (b Fixture) DeleteAll(t testing.TB, d *Driver) {
	t.Helper()
	for _, s := range d.Snapshots(t) {
		if s.Member.Of != (lvm.ID{}) {
			Must(t, d.DeleteGroupSnapshot(t.Context(), s.Member.Of))
		} else {
			Must(t, d.DeleteSnapshot(t.Context(), s.ID))
		}
	}
	for _, v := range d.Volumes(t) {
		Must(t, d.Delete(t.Context(), v.ID))
	}
	d.WaitWiped(t)
}
