package operations

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// groupSpec creates two thin volumes that are in use, and returns a request for a group snapshot of them.
func groupSpec(t *testing.T, b hosttest.Fixture, d *hosttest.Driver) (spec lvm.GroupSnapshotSpec) {
	t.Helper()
	spec.Name = "nightly"
	for _, name := range []string{"data", "wal"} {
		v := d.MustCreate(t, b.Thin(name, 8*lvm.MiB, lvm.ID{}))
		d.MustActivate(t, v)
		spec.Sources = append(spec.Sources, v.ID)
	}
	return spec
}

// TestGroupSnapshotPrepares: the volumes are prepared before the first LVM command, which freezes one, and again before they are suspended
// together. The preparation ends after the last command. An equal request prepares nothing.
func TestGroupSnapshotPrepares(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	spec := groupSpec(t, b, d)
	var did []string
	prepare := func(ctx context.Context, id lvm.ID) (func(), error) {
		if _, limited := ctx.Deadline(); !limited {
			t.Error("a preparation without a time limit")
		}
		did = append(did, "prepare "+id.LV)
		return func() { did = append(did, "end "+id.LV) }, nil
	}
	node.Before(func(argv []string) { did = append(did, argv[0]) })
	if _, err := d.CreateGroupSnapshot(t.Context(), spec, prepare); err != nil {
		t.Fatal(err)
	}
	node.Before(nil)
	first, second := spec.Sources[0].LV, spec.Sources[1].LV
	if first > second {
		first, second = second, first
	}
	begin, end := []string{"prepare " + first, "prepare " + second}, []string{"end " + second, "end " + first}
	n := len(did)
	if n < 10 || !slices.Equal(did[:2], begin) || !slices.Equal(did[4:6], begin) || !slices.Equal(did[6:8], end) || !slices.Equal(did[n-2:], end) {
		t.Errorf("did %q", did)
	}
	did = nil
	if _, err := d.CreateGroupSnapshot(t.Context(), spec, prepare); err != nil || len(did) > 0 {
		t.Errorf("an equal request did %q, %v", did, err)
	}
}

// TestGroupSnapshotWithThickVolume: a volume that is not thin is refused before anything happens to the others.
func TestGroupSnapshotWithThickVolume(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	spec := groupSpec(t, b, d)
	spec.Sources = append(spec.Sources, d.MustCreate(t, b.Light("thick", lvm.MiB)).ID)
	before := len(node.Commands())
	_, err := d.CreateGroupSnapshot(t.Context(), spec, func(context.Context, lvm.ID) (func(), error) {
		t.Error("a volume was prepared")
		return func() {}, nil
	})
	if hosttest.WantKind(t, "a thick volume", err, lvm.KindInvalid); !errors.Is(err, lvm.ErrThick) {
		t.Errorf("the error is %v", err)
	}
	if commands := node.Commands()[before:]; len(commands) > 0 {
		t.Errorf("LVM was run: %v", commands)
	}
}

// TestGroupSnapshotPreparationTakesLong: a volume whose data is not written in time fails the group snapshot. Nothing is left of it, no lock
// either, and each preparation that began has ended.
func TestGroupSnapshotPreparationTakesLong(t *testing.T) {
	for call, atMost := range map[int]time.Duration{2: time.Minute, 4: 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{10 * lvm.GiB}})
			b, d := hosttest.OnFake(node), hosttest.StartDriver(t, node, hosttest.Unsettled)
			spec := groupSpec(t, b, d)
			calls, open := 0, 0
			began := time.Now()
			_, err := d.CreateGroupSnapshot(t.Context(), spec, func(ctx context.Context, _ lvm.ID) (func(), error) {
				if calls++; calls == call {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				open++
				return func() { open-- }, nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("preparation %d: %v", call, err)
			}
			hosttest.WantKind(t, "a volume that is not prepared", err, lvm.KindBusy)
			if took := time.Since(began); took > atMost+time.Second || open != 0 || calls != call {
				t.Errorf("preparation %d of %d ended after %v, and %d are left", call, calls, took, open)
			}
			if states := hosttest.StateTags(node, "vg-test"); states["ready"] != 2 || len(states) != 1 {
				t.Errorf("volumes and snapshots by state: %v", states)
			}
			d.MustGroupSnapshot(t, spec)
		})
	}
}

// slowCreates is a runner whose lvcreate takes time.
type slowCreates struct {
	lvm.Runner
	takes time.Duration
}

func (r *slowCreates) Run(ctx context.Context, argv []string) ([]byte, error) {
	if argv[0] == "lvcreate" {
		time.Sleep(r.takes)
	}
	return r.Runner.Run(ctx, argv)
}

// TestGroupSnapshotWaitsForGroup: while another operation works on the group, volumes are prepared, without the limits of their I/O, for a minute at
// most. The group snapshot fails then, and a repeated one succeeds.
func TestGroupSnapshotWaitsForGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := lvmtest.NewNode(lvmtest.Group{Name: "vg-test", Disks: []lvm.Bytes{10 * lvm.GiB}})
		slow := &slowCreates{Runner: node.Runner()}
		b, d := hosttest.OnFake(node), hosttest.StartOn(t, node, hosttest.Unsettled, lvm.Machine{Runner: slow})
		spec := groupSpec(t, b, d)
		slow.takes = 100 * time.Second
		created := make(chan error)
		go func() {
			_, err := d.Create(t.Context(), b.Light("other", lvm.MiB))
			created <- err
		}()
		synctest.Wait()
		began, open := time.Now(), 0
		_, err := d.CreateGroupSnapshot(t.Context(), spec, func(context.Context, lvm.ID) (func(), error) {
			open++
			time.Sleep(10 * time.Second) // to write its data
			return func() { open-- }, nil
		})
		hosttest.WantKind(t, "the group is in use", err, lvm.KindBusy)
		if took := time.Since(began); took != time.Minute || open != 0 {
			t.Errorf("it ended after %v, and %d volumes are still prepared: %v", took, open, err)
		}
		hosttest.Must(t, <-created)
		slow.takes = 0
		d.MustGroupSnapshot(t, spec)
	})
}

// TestGroupSnapshotInCopiedGroup: the snapshots in a copy of a volume group, which have the tags of the originals, are no members. The deletion
// of the originals leaves them, and so does a repeated one.
func TestGroupSnapshotInCopiedGroup(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	made := d.MustGroupSnapshot(t, groupSpec(t, b, d))
	originals := node.Group("vg-test").LVs
	node.Change("vg-other", func(g *lvm.Group) {
		for _, lv := range originals {
			g.LVs = append(g.LVs, lvm.LV{UUID: lv.UUID, Name: lv.Name, Tags: lv.Tags, Created: lv.Created, Type: "linear", Extents: 1})
		}
	})
	if found, err := d.LookupGroupSnapshot(t.Context(), made.ID); err != nil || len(found.Members) != 2 || found.Members[0].ID.VG != made.ID.VG {
		t.Errorf("found %+v, %v", found, err)
	}
	hosttest.Must(t, d.DeleteGroupSnapshot(t.Context(), made.ID))
	hosttest.Must(t, d.DeleteGroupSnapshot(t.Context(), made.ID))
	if left := len(node.Group("vg-other").LVs); left != len(originals) {
		t.Errorf("%d of the copies are left, want %d", left, len(originals))
	}
}

// TestGroupSnapshotMemberOfAnotherCluster: a deletion refuses a member that has the tag of another cluster, and removes no other one.
func TestGroupSnapshotMemberOfAnotherCluster(t *testing.T) {
	node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
	made := d.MustGroupSnapshot(t, groupSpec(t, b, d))
	snapshots := func() (count int) {
		for _, lv := range node.Group("vg-test").LVs {
			if slices.ContainsFunc(lv.Tags, func(tag string) bool { return strings.HasPrefix(tag, "nodelvm.groupsnapshot=") }) {
				count++
			}
		}
		return count
	}
	other := made.Members[1]
	if other.Member.IsFirst() {
		other = made.Members[0]
	}
	node.Change("vg-test", func(g *lvm.Group) {
		for i := range g.LVs {
			if g.LVs[i].Name == other.ID.LV {
				tags := strings.Join(g.LVs[i].Tags, " ")
				g.LVs[i].Tags = strings.Fields(strings.Replace(tags, "nodelvm.cluster="+hosttest.Cluster, "nodelvm.cluster=another", 1))
			}
		}
	})
	hosttest.WantKind(t, "deletion", d.DeleteGroupSnapshot(t.Context(), made.ID), lvm.KindNotManaged)
	if n := snapshots(); n != 2 {
		t.Errorf("%d snapshots after the refused deletion", n)
	}
}

// TestGroupSnapshotDeletedWithoutAGroup: while a volume group with snapshots of a group snapshot is missing, a deletion removes none, and says what
// is left. When the group is back, a repeated one removes all.
func TestGroupSnapshotDeletedWithoutAGroup(t *testing.T) {
	for _, group := range []string{"vg-test", "vg-other"} {
		t.Run(group, func(t *testing.T) {
			node, b, d := hosttest.StartedWith(t, hosttest.Unsettled)
			spec := groupSpec(t, b, d)
			other := b.Thin("logs", 8*lvm.MiB, lvm.ID{})
			other.Class.Group = "vg-other"
			spec.Sources = append(spec.Sources, d.MustCreate(t, other).ID)
			made := d.MustGroupSnapshot(t, spec)
			plug := node.Unplug(group)
			left := len(d.Snapshots(t))
			err := d.DeleteGroupSnapshot(t.Context(), made.ID)
			hosttest.WantKind(t, "a deletion without "+group, err, lvm.KindBusy)
			for _, sn := range made.Members {
				if named := strings.Contains(err.Error(), string(sn.Group)+"/"+sn.ID.LV); named != (string(sn.Group) != group) {
					t.Errorf("snapshot %s/%s is named: %t: %v", sn.Group, sn.ID.LV, named, err)
				}
			}
			if n := len(d.Snapshots(t)); n != left || left == 0 || left == 3 {
				t.Errorf("%d of %d snapshots are left", n, left)
			}
			plug()
			hosttest.Must(t, d.DeleteGroupSnapshot(t.Context(), made.ID))
			if left := d.Snapshots(t); len(left) != 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// messaged is a kernel that calls functions when a thin pool has accepted a message, and when a file system is found not to be frozen.
type messaged struct {
	lvm.Kernel
	accepted func(pool, text string)
	checked  func()
}

func (k messaged) MessagePool(uuid, text string) error {
	err := k.Kernel.MessagePool(uuid, text)
	if err == nil && k.accepted != nil {
		k.accepted(uuid, text)
	}
	return err
}

func (k messaged) IsFrozen(path string) (bool, error) {
	frozen, err := k.Kernel.IsFrozen(path)
	if !frozen && k.checked != nil {
		k.checked()
	}
	return frozen, err
}

// TestGroupSnapshotNotCommitted: a group snapshot fails if its pool becomes read-only while it takes the snapshots: the pool accepts the
// messages, and has the reserved snapshots.
func TestGroupSnapshotNotCommitted(t *testing.T) {
	for _, status := range []string{
		"1 10/1000 1/2000 - ro discard_passdown error_if_no_space needs_check 128", "1 10/1000 1/2000 - rw discard_passdown error_if_no_space needs_check 128", "Fail",
	} {
		node := hosttest.NewNode()
		broken := ""
		kernel := messaged{Kernel: node.Kernel(), accepted: func(pool, text string) {
			path, _, _ := node.Kernel().Device(pool)
			if broken != "" && strings.HasPrefix(text, "create_snap") {
				node.SetStatus(path, "thin-pool", broken)
			}
		}}
		b, d := hosttest.OnFake(node), hosttest.StartOn(t, node, hosttest.Unsettled, lvm.Machine{Kernel: kernel})
		spec := groupSpec(t, b, d)
		broken = status
		hosttest.Refused(t, status, lvm.KindBusy)(d.CreateGroupSnapshot(t.Context(), spec, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }))
		if states := hosttest.StateTags(node, "vg-test"); states["ready"] != 2 {
			t.Errorf("with the status %q: volumes and snapshots by state: %v", status, states)
		}
	}
}

// TestGroupSnapshotChangedBeforeLock: another program replaces a reserved snapshot until the driver has LVM's lock. The driver sends no message
// to the pool: the number may be another volume's.
func TestGroupSnapshotChangedBeforeLock(t *testing.T) {
	node := hosttest.NewNode()
	var sent []string
	reserved, checks := 0, 0
	kernel := messaged{Kernel: node.Kernel(), accepted: func(_, text string) { sent = append(sent, text) }}
	kernel.checked = func() {
		if reserved < 2 { // the volumes are prepared again after that
			return
		}
		if checks++; checks == 2 { // each volume was checked
			node.Change("vg-test", func(g *lvm.Group) {
				for i := range g.LVs {
					if slices.ContainsFunc(g.LVs[i].Tags, func(tag string) bool { return strings.HasPrefix(tag, "nodelvm.groupsnapshot=") }) {
						g.LVs[i].UUID = strings.Replace(g.LVs[i].UUID, "0000", "1111", 1)
					}
				}
			})
		}
	}
	b, d := hosttest.OnFake(node), hosttest.StartOn(t, node, hosttest.Unsettled, lvm.Machine{Kernel: kernel})
	spec := groupSpec(t, b, d)
	prepared := 0
	hosttest.Refused(t, "replaced snapshots", lvm.KindBusy)(d.CreateGroupSnapshot(t.Context(), spec, func(context.Context, lvm.ID) (func(), error) {
		if prepared++; prepared > len(spec.Sources) {
			reserved++
		}
		return func() {}, nil
	}))
	if len(sent) > 0 || checks < 2 {
		t.Errorf("after %d checks the pool accepted %q", checks, sent)
	}
}
