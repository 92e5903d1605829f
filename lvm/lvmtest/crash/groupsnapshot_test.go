//go:build reallvm

package crash

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// makeOrigins creates two active volumes with a pattern in each.
func (c *crash) makeOrigins(d *hosttest.Driver) {
	c.makeOrigin(d)
	v := d.MustCreate(c.t, c.b.Thin("second", 8*lvm.MiB, lvm.ID{}))
	f, err := os.OpenFile(d.MustActivate(c.t, v), os.O_WRONLY, 0)
	hosttest.Must(c.t, err)
	_, err = f.WriteString(strings.Repeat(pattern, 1<<15))
	hosttest.Must(c.t, err)
	hosttest.Must(c.t, f.Sync())
	hosttest.Must(c.t, f.Close())
}

func (c *crash) groupSnapshot(d *hosttest.Driver) error {
	spec := lvm.GroupSnapshotSpec{Name: c.name()}
	for _, name := range []string{"origin", "second"} {
		v, err := c.find(d, name)
		if err != nil {
			return err
		}
		spec.Sources = append(spec.Sources, v.ID)
		if _, _, err := d.ActivateAs(context.Background(), v.ID, v.UUID, v.Class.Encryption); err != nil {
			return err
		}
	}
	_, err := d.CreateGroupSnapshot(context.Background(), spec, func(context.Context, lvm.ID) (func(), error) { return func() {}, nil })
	return err
}

func (c *crash) checkGroupSnapshot(d *hosttest.Driver) {
	snapshots := d.Snapshots(c.t)
	if len(snapshots) != 2 {
		c.t.Fatalf("listed snapshots %+v", snapshots)
	}
	for _, sn := range snapshots {
		restored := d.MustCreate(c.t, c.b.Thin("restored", 0, sn.ID))
		_, device := c.volume(d, "restored")
		c.checkPattern(device)
		hosttest.Must(c.t, d.Delete(context.Background(), restored.ID))
	}
	c.checkNoGroupSnapshot(d)
}

func (c *crash) prepareGroupSnapshot(d *hosttest.Driver) { hosttest.Must(c.t, c.groupSnapshot(d)) }

// removeGroupSnapshot removes the group snapshot, if there is one.
func (c *crash) removeGroupSnapshot(d *hosttest.Driver) error {
	return d.DeleteGroupSnapshot(context.Background(), lvm.ID{VG: c.b.ReadGroup(c.t).UUID, LV: lvm.GroupSnapshotName(c.name())})
}

// checkNoGroupSnapshot removes what is left of the case, and checks that the volumes, and their data are as before.
func (c *crash) checkNoGroupSnapshot(d *hosttest.Driver) {
	hosttest.Must(c.t, c.removeGroupSnapshot(d))
	for _, name := range []string{"origin", "second"} {
		_, device := c.volume(d, name)
		c.checkPattern(device)
	}
	d.WaitWiped(c.t)
	c.nothingBut(2)
}

// podBlock is the block of a volume that pods write, behind the pattern; podPause is the time between two writes.
const (
	podBlock = int64(4 * lvm.MiB)
	podPause = time.Millisecond
)

// startPods writes to both volumes of a group snapshot, as pods do, until end is called. It returns the longest time that a write took.
func (c *crash) startPods() (end func() time.Duration) {
	g := c.b.ReadGroup(c.t)
	stop, ended, writers := make(chan struct{}), make(chan error), 0
	longest := &atomic.Int64{}
	for lv := range g.Volumes() {
		device, active, err := dm.Kernel{Sys: "/sys", Dev: "/dev"}.Device(lvm.DeviceUUID(g.UUID, lv.UUID))
		hosttest.Must(c.t, err)
		if !active {
			c.t.Fatalf("volume %s is not active", lv.Name)
		}
		f, err := os.OpenFile(device, os.O_WRONLY|unix.O_DSYNC, 0)
		hosttest.Must(c.t, err)
		writers++
		go func() { ended <- writeUntil(stop, f, longest) }()
	}
	return func() time.Duration {
		close(stop)
		for range writers {
			select {
			case err := <-ended:
				hosttest.Must(c.t, err)
			case <-time.After(wait.Limit(time.Minute)):
				c.t.Fatal("a pod's write does not end")
			}
		}
		return time.Duration(longest.Load())
	}
}

func writeUntil(stop <-chan struct{}, f *os.File, longest *atomic.Int64) error {
	for {
		began := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), podBlock); err != nil {
			return err
		}
		for took := int64(time.Since(began)); ; {
			if before := longest.Load(); took <= before || longest.CompareAndSwap(before, took) {
				break
			}
		}
		select {
		case <-stop:
			return f.Close()
		case <-time.After(podPause):
		}
	}
}
