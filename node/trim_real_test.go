//go:build realfs

package node

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/node/filesystem"
)

// TestTrim: the blocks of deleted files return to what is below the device, and the data of others stays.
func TestTrim(t *testing.T) {
	for _, fsType := range filesystem.Types {
		t.Run(fsType, func(t *testing.T) {
			b := newBench(t)
			b.volume("v", 320)
			staging := b.path("staging")
			b.must(b.stage("v", fsType, staging))
			b.keep(staging, "data")
			noise := make([]byte, 100*megabytes)
			for i := range noise {
				noise[i] = byte(i*7 + i>>8)
			}
			b.must(os.WriteFile(filepath.Join(staging, "deleted"), noise, 0o600))
			unix.Sync()
			full := b.allocated("v")
			b.must(os.Remove(filepath.Join(staging, "deleted")))
			b.must(b.unstage("v", staging)) // xfs frees the blocks of deleted files in the background
			b.must(b.stage("v", fsType, staging))
			list, err := b.Trimmable(t.Context())
			b.must(err)
			if len(list) != 1 {
				t.Fatalf("to trim: %+v", list)
			}
			trimmed, ranges := b.trim("v")
			if trimmed < 90*megabytes || trimmed > 2*320*megabytes { // btrfs of Linux 6.1 counts blocks twice
				t.Errorf("trimmed %s in %d ranges", trimmed, ranges)
			}
			left := b.allocated("v")
			for end := time.Now().Add(wait.Limit(30 * time.Second)); full-left < 90*megabytes && time.Now().Before(end); left = b.allocated("v") {
				time.Sleep(10 * time.Millisecond) // xfs does not wait for its last discards to end
			}
			if full-left < 90*megabytes {
				t.Errorf("%s were allocated before, %s are after", full, left)
			}
			b.expectKept(staging, "data")
			b.must(b.unstage("v", staging))
			if _, _, err := b.Trim(t.Context(), lvm.ID{VG: vgUUID, LV: "v"}, 0); lvm.KindOf(err) != lvm.KindNotFound {
				t.Errorf("unmounted: %v", err)
			}
		})
	}
}

// trim trims a volume's file system range by range.
func (b *bench) trim(name string) (trimmed lvm.Bytes, ranges int) {
	b.t.Helper()
	for from := lvm.Bytes(0); ; ranges++ {
		n, next, err := b.Trim(b.t.Context(), lvm.ID{VG: vgUUID, LV: name}, from)
		if errors.Is(err, io.EOF) {
			return trimmed, ranges
		}
		b.must(err)
		trimmed, from = trimmed+n, next
	}
}

// allocated is how much of the disk a volume's file occupies.
func (b *bench) allocated(name string) lvm.Bytes {
	b.t.Helper()
	var stat unix.Stat_t
	b.must(unix.Stat(b.path(name+".img"), &stat))
	return lvm.Bytes(stat.Blocks) * 512
}
