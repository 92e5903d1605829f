package thinpool

import (
	"context"
	"fmt"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestFailedPool: a thin pool takes no writes until it is activated again. The driver does so when it activates one of its volumes, unless another
// is in use, or LVM could not activate the pool afterwards.
func TestFailedPool(t *testing.T) {
	start := func(t *testing.T) (node *lvmtest.Node, b hosttest.Fixture, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		node, b, d = hosttest.Started(t)
		for i := range v {
			v[i] = d.MustCreate(t, b.Thin(fmt.Sprint("v", i), 8*lvm.MiB, lvm.ID{}))
			d.MustActivate(t, v[i])
		}
		setPool(t, node, b, "ro discard_passdown error_if_no_space needs_check")
		wantFailed(t, d, v, true)
		return node, b, d, v
	}
	works := func(t *testing.T, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		d.MustActivate(t, v[0])
		wantFailed(t, d, v, false)
		for _, v := range v {
			d.MustDevice(t, v)
		}
	}
	refuses := func(t *testing.T, d *hosttest.Driver, v [2]lvm.Volume) {
		t.Helper()
		device := d.MustDevice(t, v[1])
		d.Counted(t, "an activation in a pool that the driver may not deactivate", 0, func() {
			if now := d.MustActivate(t, v[1]); now != device {
				t.Errorf("the device was %s and is %s", device, now)
			}
		})
	}
	t.Run("unused", func(t *testing.T) {
		_, _, d, v := start(t)
		works(t, d, v)
	})
	t.Run("only the pool itself is active", func(t *testing.T) {
		_, b, d, v := start(t)
		for _, v := range v {
			b.Admin(t, "lvchange", "-an", b.Group+"/"+v.ID.LV)
		}
		d.MustActivate(t, v[0])
		wantFailed(t, d, v, false)
	})
	t.Run("a volume in use", func(t *testing.T) {
		node, _, d, v := start(t)
		release := node.Hold(d.MustDevice(t, v[0]))
		refuses(t, d, v)
		release()
		works(t, d, v)
	})
	t.Run("another transaction", func(t *testing.T) {
		node, b, d, v := start(t)
		same := restore(node, b.Group, 0)
		refuses(t, d, v)
		restore(node, b.Group, same)
		works(t, d, v)
	})
	t.Run("a disk is missing", func(t *testing.T) {
		node, b, d, v := start(t)
		miss := func(is bool) {
			node.Change(b.Group, func(g *lvm.Group) {
				for i := range g.PVs {
					g.PVs[i].Missing = is
				}
			})
		}
		miss(true)
		refuses(t, d, v)
		miss(false)
		works(t, d, v)
	})
}

// setPool sets what the kernel shows of the active pool: its mode and what follows.
func setPool(t *testing.T, node *lvmtest.Node, b hosttest.Fixture, mode string) {
	t.Helper()
	pool := hosttest.FindLV(t, node.Group(b.Group), lvm.DefaultPool)
	path, active, err := node.Kernel().Device(lvmtest.DeviceUUID(string(b.ReadGroup(t).UUID), pool.UUID) + "-tpool")
	if hosttest.Must(t, err); !active {
		t.Fatal("the pool is not active")
	}
	node.SetStatus(path, "thin-pool", fmt.Sprintf("%d 10/1000 1/2000 - %s 128", pool.Thin.TransactionID, mode))
}

// TestFailedPoolOfReplayedCopy: what the replay of a copy's journal wrote is not counted any more when the copy gets another device.
func TestFailedPoolOfReplayedCopy(t *testing.T) {
	node, b, d := hosttest.Started(t)
	snapshot := d.MustSnapshot(t, "snapshot", d.MustCreate(t, b.Thin("origin", 8*lvm.MiB, lvm.ID{})).ID)
	spec := b.Thin("copy", 0, snapshot.ID)
	spec.Access = lvm.AccessReplay
	v := d.MustCreate(t, spec)
	device := d.MustActivate(t, v)
	hosttest.Must(t, d.BeginReplay(t.Context(), v.ID, v.UUID))
	b.Write(t, device, 100)
	setPool(t, node, b, "ro discard_passdown error_if_no_space needs_check")
	d.MustActivate(t, v)
	hosttest.Must(t, d.BeginReplay(t.Context(), v.ID, v.UUID))
	hosttest.Must(t, d.SetReplayed(t.Context(), v.ID, v.UUID))
	now, err := d.Lookup(t.Context(), v.ID)
	if hosttest.Must(t, err); now.Access != lvm.AccessReadOnlyFull {
		t.Errorf("the copy has the access %q: the replay may have written all of it", now.Access)
	}
}

// publisher lets a raw device be published as soon as the driver has found it unused.
type publisher struct {
	lvm.Kernel
	found func(path string)
}

func (p *publisher) CheckUnused(ctx context.Context, path string) error {
	err := p.Kernel.CheckUnused(ctx, path)
	if err == nil && p.found != nil {
		p.found(path)
	}
	return err
}

// TestFailedPoolOfPublishedDevice: the device of a raw volume that a pod is about to get is not replaced: the pod would get the next device with its
// number.
func TestFailedPoolOfPublishedDevice(t *testing.T) {
	node := hosttest.NewNode()
	b := hosttest.OnFake(node)
	kernel := &publisher{Kernel: node.Kernel()}
	d := hosttest.StartOn(t, node, lvm.Config{}, lvm.Machine{Kernel: kernel})
	raw, other := d.MustCreate(t, b.Thin("raw", 8*lvm.MiB, lvm.ID{})), d.MustCreate(t, b.Thin("other", 8*lvm.MiB, lvm.ID{}))
	device := d.MustActivate(t, raw)
	d.MustActivate(t, other)
	setPool(t, node, b, "ro discard_passdown error_if_no_space needs_check")
	publish := func() error { // as NodePublishVolume does, but without the device
		bound, err := d.Binding(raw.ID)
		if err == nil {
			bound()
		}
		return err
	}
	var refused error
	kernel.found = func(path string) {
		if path == device {
			refused = publish()
		}
	}
	d.MustActivate(t, other)
	if lvm.KindOf(refused) != lvm.KindBusy || d.MustDevice(t, raw) == device {
		t.Errorf("a publication while the pool is activated again: %v; the volume's device was %s and is %s", refused, device, d.MustDevice(t, raw))
	}
	kernel.found = nil
	hosttest.Must(t, publish())

	setPool(t, node, b, "ro discard_passdown error_if_no_space needs_check")
	bound, err := d.Binding(raw.ID)
	hosttest.Must(t, err)
	device = d.MustDevice(t, raw)
	d.MustActivate(t, other)
	if now := d.MustDevice(t, raw); now != device {
		t.Errorf("while %s is published, the volume gets %s", device, now)
	}
	bound()
	d.MustActivate(t, other)
	if d.MustDevice(t, raw) == device {
		t.Error("the pool was not activated again after the publication")
	}
}

// leftMapping is the mapping of the only encrypted volume. A failed staging left it open.
type leftMapping struct {
	lvm.Encryptor
	closed func() // releases the logical volume; nil: there is no mapping
}

func (m *leftMapping) Mapping(string) (string, uint64, bool, error) {
	return "/dev/dm-mapping", 0, m.closed != nil, nil
}

func (m *leftMapping) Unstage(context.Context, string) error {
	if m.closed != nil {
		m.closed()
	}
	m.closed = nil
	return nil
}

// TestFailedPoolOfOpenVolume: an encrypted volume that a failed staging left open is closed, so that the pool can be activated again, but not one
// that is being staged.
func TestFailedPoolOfOpenVolume(t *testing.T) {
	node := hosttest.NewNode()
	b, mapping := hosttest.OnFake(node), &leftMapping{}
	d := hosttest.StartOn(t, node, lvm.Config{Encryption: mapping}, lvm.Machine{})
	spec := b.Thin("encrypted", 8*lvm.MiB, lvm.ID{})
	spec.Class.Encryption = lvm.EncryptionLUKS2
	v, other := d.MustCreate(t, spec), d.MustCreate(t, b.Thin("other", 8*lvm.MiB, lvm.ID{}))
	device := d.MustActivate(t, v)
	d.MustActivate(t, other)
	mapping.closed = node.Hold(device)
	setPool(t, node, b, "ro discard_passdown error_if_no_space needs_check")

	staged := node.Hold(device)
	d.MustActivate(t, other)
	if mapping.closed == nil || d.MustDevice(t, v) != device {
		t.Error("the driver closed a volume that is being staged")
	}
	staged()
	d.MustActivate(t, other)
	if mapping.closed != nil || d.MustDevice(t, v) == device {
		t.Error("the driver did not activate the pool of an open but unused volume again")
	}
}

// wantFailed checks whether Health reports of each volume that its pool has failed.
func wantFailed(t *testing.T, d *hosttest.Driver, volumes [2]lvm.Volume, want bool) {
	t.Helper()
	found := d.Conditions(t)
	for _, v := range volumes {
		if is := hosttest.HasCondition(found, lvm.ConditionThinPoolFailed, v.UUID); is != want {
			t.Errorf("%s is on a failed pool: %v; conditions %+v", v.ID.LV, is, found)
		}
	}
}
