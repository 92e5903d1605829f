package main

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/disks"
	"github.com/nodelvm/nodelvm/report"
)

// sick is a part with conditions, or one that fails.
type sick struct {
	found []lvm.Condition
	err   error
}

func (s sick) Health(context.Context) ([]lvm.Condition, error) { return s.found, s.err }

// TestHealthOf: a part that fails hides no other's conditions.
func TestHealthOf(t *testing.T) {
	read := healthOf(sick{found: []lvm.Condition{{Group: "a"}}}, sick{err: errors.New("the kernel does not answer")}, sick{found: []lvm.Condition{{Group: "b"}}})
	if found, err := read(t.Context()); len(found) != 2 || found[0].Group != "a" || found[1].Group != "b" || err == nil {
		t.Errorf("found %v, %v", found, err)
	}
}

// TestVolumeDetails: the document has each volume's file system, and the class of the claim that is bound to it.
func TestVolumeDetails(t *testing.T) {
	inv := report.Inventory{Volumes: []report.Volume{entry("a", "ours", "ready"), entry("b", "ours", "ready")}}
	details := volumeDetails{
		fileSystems: func(context.Context) (map[lvm.ID]report.FileSystem, error) {
			return map[lvm.ID]report.FileSystem{{VG: testGroup, LV: "a"}: {Size: 7}, {VG: testGroup, LV: "gone"}: {Size: 8}}, nil
		},
		class: func(volume string) string { return map[string]string{"b": "fast"}[volume] },
	}
	must(t, details.addTo(t.Context(), &inv))
	if a, b := inv.Volumes[0], inv.Volumes[1]; a.FileSystem == nil || a.FileSystem.Size != 7 || a.Class != "" || b.FileSystem != nil || b.Class != "fast" {
		t.Errorf("got %+v", inv.Volumes)
	}
}

// TestComparison: the document shows what the agent's last comparison found, without volumes that were removed since. While a
// disk is unreadable, absence proves nothing.
func TestComparison(t *testing.T) {
	entry := func(handle string) report.Unreferenced { return report.Unreferenced{Handle: handle} }
	now := report.Inventory{
		Volumes:   []report.Volume{{ID: "vg/pvc-1", State: string(lvm.StateReady), Created: time.Unix(1, 0)}, {ID: "vg/pvc-2", State: string(lvm.StateDeleting)}},
		Snapshots: []report.Snapshot{{ID: "vg/s-1", State: string(lvm.StateReady), Created: time.Unix(2, 0)}},
	}
	found := func() *report.Comparison {
		return &report.Comparison{Unreferenced: []report.Unreferenced{entry("vg/pvc-1"), entry("vg/pvc-2"), entry("vg/pvc-3"), entry("vg/s-1")}}
	}
	got := stillThere(found(), now).Unreferenced
	if len(got) != 2 || got[0].Handle != "vg/pvc-1" || got[0].Created.Unix() != 1 || got[1].Handle != "vg/s-1" || got[1].Created.Unix() != 2 {
		t.Errorf("left are %+v", got)
	}
	now.Unread = []string{"/dev/sdc does not answer"}
	if got := stillThere(found(), now).Unreferenced; len(got) != 4 {
		t.Errorf("with an unreadable disk, left are %+v", got)
	}
	unreadable := document{host: unreadableNode{}, health: sick{}.Health, compare: found}
	if n := unreadable.read(t.Context()); n.Comparison == nil || len(n.Comparison.Unreferenced) != 4 {
		t.Errorf("of disks that cannot be read: %+v", n.Comparison)
	}
}

// TestUnreadableGroupsLoseNoDisk: while the groups cannot be read, no recorded disk counts as lost with its group.
func TestUnreadableGroupsLoseNoDisk(t *testing.T) {
	registry, err := disks.New(filepath.Join(t.TempDir(), "disks.json"))
	must(t, err)
	registry.Observe(report.Inventory{Groups: []report.Group{{Name: "vg", UUID: testGroup, PVs: []report.PV{{UUID: "pv", Device: "/dev/absent"}}}}})
	about := document{health: sick{}.Health, details: volumeDetails{disks: registry}}
	for host, lost := range map[nodeHost]int{unreadableNode{}: 0, strayVolume{}: 1} {
		about.host = host
		if n := about.read(t.Context()); len(n.LostDisks) != lost {
			t.Errorf("%T: lost are %+v", host, n.LostDisks)
		}
	}
}

// strayVolume is a node with a volume and without groups.
type strayVolume struct{ unreadableNode }

func (strayVolume) Inventory(context.Context) (report.Inventory, error) {
	return report.Inventory{Volumes: []report.Volume{entry("a", "ours", "ready")}}, nil
}

// TestOneWaitForABlockedDevice: the file systems and the conditions wait for a blocked device at the same time. One after the other they take
// more than a scrape may.
func TestOneWaitForABlockedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const patience = 3 * time.Second
		wait := func() { <-time.After(patience) }
		began := time.Now()
		document{
			host:    strayVolume{},
			health:  func(context.Context) ([]lvm.Condition, error) { wait(); return nil, nil },
			details: volumeDetails{fileSystems: func(context.Context) (map[lvm.ID]report.FileSystem, error) { wait(); return nil, nil }},
		}.read(t.Context())
		if took := time.Since(began); took != patience {
			t.Errorf("the document took %s", took)
		}
	})
}

// endlessNode is a node whose groups are not read before the reader gives up.
type endlessNode struct{ unreadableNode }

func (endlessNode) Inventory(ctx context.Context) (report.Inventory, error) {
	<-ctx.Done()
	return report.Inventory{}, ctx.Err()
}

// TestPageSaysWhyTheDriverIsNotReady: also if the groups take all the time that the reader has.
func TestPageSaysWhyTheDriverIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := func(ctx context.Context) error {
			return cmp.Or(ctx.Err(), errors.New("a disk hangs"))
		}
		p := newStatusPage(&options{}, ready, func() report.Registration { return report.Registration{} })
		p.serve(document{host: endlessNode{}, health: sick{}.Health})
		ctx, cancel := context.WithTimeout(t.Context(), statusTimeout)
		defer cancel()
		if page := p.page(ctx, nil); page.NotReady != "a disk hangs" {
			t.Errorf("not ready, because %q", page.NotReady)
		}
	})
}
