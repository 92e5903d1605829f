package node

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
	"github.com/nodelvm/nodelvm/report"
)

func TestFileSystems(t *testing.T) {
	full := report.FileSystem{Type: "ext4", Size: 100, Used: 60, Available: 30, Inodes: 10, InodesUsed: 4, InodesFree: 6}
	broken := errors.New("input/output error")
	for name, test := range map[string]struct {
		change func(*fake)
		want   *report.FileSystem // nil: none
	}{
		"mounted":     {func(*fake) {}, &full},
		"not mounted": {func(f *fake) { clear(f.mounts) }, nil},
		"encrypted": {func(f *fake) {
			f.luks.class, f.luks.open = lvm.Class{Encryption: lvm.EncryptionLUKS2}, true
			f.mounts["/staging"].Device = mappingDevice
		}, &full},
		"encrypted and closed": {func(f *fake) { f.luks.class = lvm.Class{Encryption: lvm.EncryptionLUKS2} }, nil},
		"not active":           {func(f *fake) { f.active = false }, nil},
		"another device is mounted": {func(f *fake) {
			f.mounts["/staging"] = fsMount(otherDevice, false)
		}, nil},
		"unmounted meanwhile": {func(f *fake) {
			f.usage = func(mount.FileSystem) (mount.Usage, error) { return mount.Usage{}, fs.ErrNotExist }
		}, nil},
		"covered at its first path": {func(f *fake) {
			f.mounts["/target"] = fsMount(ourDevice, false)
			f.usage = func(m mount.FileSystem) (mount.Usage, error) {
				if m.Path == "/staging" {
					return mount.Usage{}, fs.ErrNotExist
				}
				return fullUsage, nil
			}
		}, &full},
		"unreadable": {func(f *fake) {
			f.usage = func(mount.FileSystem) (mount.Usage, error) { return mount.Usage{}, broken }
		}, &report.FileSystem{Type: "ext4", Error: broken.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.mounts["/staging"] = fsMount(ourDevice, false)
			f.mounts["/staging"].FSType = "ext4"
			test.change(f)
			if f.mounts["/target"] != nil {
				f.mounts["/target"].FSType = "ext4"
			}
			got, err := f.server().FileSystems(t.Context())
			entry, found := got[testID]
			if err != nil || found != (test.want != nil) || found && entry != *test.want {
				t.Errorf("got %+v, %v", got, err)
			}
			f.expect(t)
		})
	}
}

// TestFileSystemThatDoesNotAnswer: callers get an error in time, all of them together cost one read, and a later call gets the
// usage.
func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.mounts["/staging"] = fsMount(ourDevice, false)
		answer, reads := make(chan struct{}), atomic.Int32{}
		f.usage = func(mount.FileSystem) (mount.Usage, error) {
			reads.Add(1)
			<-answer
			return fullUsage, nil
		}
		s := f.server()
		for range 3 {
			got, err := s.FileSystems(t.Context())
			if entry := got[testID]; err != nil || !strings.Contains(entry.Error, "has not answered since") || entry.Size != 0 {
				t.Errorf("got %+v, %v", got, err)
			}
			if stats, err := s.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: testID.String(), VolumePath: "/staging"}); lvm.KindOf(err) != lvm.KindBusy {
				t.Errorf("the kubelet gets %v, %v", stats, err)
			}
		}
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads of one file system", n)
		}
		close(answer)
		synctest.Wait()
		got, err := s.FileSystems(t.Context())
		if entry := got[testID]; err != nil || entry.Error != "" || entry.Size != 100 {
			t.Errorf("once it answers: %+v, %v", got, err)
		}
	})
}

// TestFullFileSystems: each limit of a file system has its condition, with the command that expands its claim.
func TestFullFileSystems(t *testing.T) {
	for name, test := range map[string]struct {
		usage mount.Usage
		want  []lvm.ConditionType
	}{
		"half full":            {mount.Usage{Total: 1000, Available: 500, Inodes: 100, InodesFree: 50}, nil},
		"at the limit":         {mount.Usage{Total: 1000, Available: 100, Inodes: 100, InodesFree: 10}, nil},
		"nearly full":          {mount.Usage{Total: 1000, Available: 99}, []lvm.ConditionType{lvm.ConditionFileSystemNearlyFull}},
		"just not full":        {mount.Usage{Total: 1000, Available: 20}, []lvm.ConditionType{lvm.ConditionFileSystemNearlyFull}},
		"full":                 {mount.Usage{Total: 1000, Available: 19}, []lvm.ConditionType{lvm.ConditionFileSystemFull}},
		"inodes nearly used":   {mount.Usage{Total: 1000, Available: 500, Inodes: 100, InodesFree: 9}, []lvm.ConditionType{lvm.ConditionFileSystemInodesNearlyUsed}},
		"full, and no inodes":  {mount.Usage{Total: 1000, Inodes: 100}, []lvm.ConditionType{lvm.ConditionFileSystemFull, lvm.ConditionFileSystemInodesNearlyUsed}},
		"without inode limits": {mount.Usage{Total: 1000, Available: 500}, nil},
		"no size":              {mount.Usage{}, nil},
		"of the largest size":  {mount.Usage{Total: math.MaxInt64, Available: math.MaxInt64 / 11}, []lvm.ConditionType{lvm.ConditionFileSystemNearlyFull}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.active = true
			f.mounts["/staging"] = fsMount(ourDevice, false)
			f.usage = func(mount.FileSystem) (mount.Usage, error) { return test.usage, nil }
			found, err := f.server().Health(t.Context())
			var got []lvm.ConditionType
			for _, c := range found {
				got = append(got, c.Type)
				if !strings.Contains(c.Text, "kubectl patch pvc data -n shop") || c.Volume.ID != testID {
					t.Errorf("%+v", c)
				}
			}
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("found %v, %v; want %v", got, err, test.want)
			}
		})
	}
}
