package node

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestSyncBeforeCopy: only a btrfs that is mounted for writing is synced, while nothing else works on the volume; an error is retried.
func TestSyncBeforeCopy(t *testing.T) {
	f := newFake()
	s := f.server()
	sync := func(want lvm.Kind) {
		t.Helper()
		if err := s.SyncBeforeCopy(t.Context(), testID); (err != nil || want != 0) && lvm.KindOf(err) != want {
			t.Errorf("kind %d: %v", lvm.KindOf(err), err)
		}
	}
	sync(0) // not mounted
	f.mounts["/other"] = fsMount(otherDevice, false)
	f.mounts["/other"].FSType = "btrfs"
	f.mounts["/staging"] = fsMount(ourDevice, false)
	sync(0) // LVM freezes ext4
	f.mounts["/staging"].FSType, f.mounts["/staging"].ReadOnly = "btrfs", true
	sync(0)
	f.expect(t)
	f.mounts["/staging"].ReadOnly = false
	sync(0)
	f.fail = "sync"
	sync(lvm.KindBusy)
	f.mounts["/target"] = f.mounts["/staging"]
	f.fail = "sync /staging"
	sync(0) // at the other mount
	f.expect(t, "sync /staging", "sync /staging", "sync /staging", "sync /target")
	release, err := s.locks.lockShared(testID.String())
	must(t, err)
	sync(lvm.KindBusy)
	release()
	f.active = false
	sync(0)
	f.expect(t)
}

// TestSyncBeforeGroupSnapshot: what a pod may have written is on the disks before the volumes are suspended: of each file system, and of a raw
// device, whose cached data the kernel would write meanwhile.
func TestSyncBeforeGroupSnapshot(t *testing.T) {
	for what, test := range map[string]struct {
		change func(f *fake)
		want   []string
		kind   lvm.Kind
	}{
		"ext4":              {func(f *fake) { f.mounts["/staging"] = fsMount(ourDevice, false) }, []string{"sync /staging"}, 0},
		"mounted read-only": {func(f *fake) { f.mounts["/staging"] = fsMount(ourDevice, true) }, nil, 0},
		"raw":               {func(*fake) {}, []string{"sync /dev/dm-3"}, 0},
		"raw, encrypted": {func(f *fake) {
			f.luks.class, f.luks.open = lvm.Class{Layout: lvm.LayoutThin, Encryption: lvm.EncryptionLUKS2}, true
		}, []string{"sync " + mappingPath}, 0},
		"a read-only copy": {func(f *fake) { f.volume.Access = lvm.AccessReadOnly }, nil, 0},
		"not active":       {func(f *fake) { f.active = false }, nil, 0},
		"a failing disk":   {func(f *fake) { f.fail = "sync" }, []string{"sync /dev/dm-3"}, lvm.KindBusy},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFake()
			test.change(f)
			if err := f.server().SyncBeforeGroupSnapshot(t.Context(), testID); (err != nil) != (test.kind != 0) || err != nil && lvm.KindOf(err) != test.kind {
				t.Errorf("kind %d: %v", lvm.KindOf(err), err)
			}
			f.expect(t, test.want...)
		})
	}
}

// TestSyncOfUnresponsiveDisk: the caller gets an answer when its time is over; the volume stays locked until the disk responds.
func TestSyncOfUnresponsiveDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := f.server()
		f.mounts["/staging"] = fsMount(ourDevice, false)
		f.mounts["/staging"].FSType = "btrfs"
		f.syncing = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 2 {
			if err := s.SyncBeforeCopy(ctx, testID); lvm.KindOf(err) != lvm.KindBusy {
				t.Errorf("while the disk does not respond: %v", err)
			}
		}
		close(f.syncing)
		synctest.Wait()
		if err := s.SyncBeforeCopy(t.Context(), testID); err != nil {
			t.Error(err)
		}
		f.expect(t, "sync /staging", "sync /staging")
	})
}
