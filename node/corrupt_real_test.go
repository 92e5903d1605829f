//go:build realfs

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// corruptions are file systems that a tenant with a raw volume can write: a valid superblock, and overwritten blocks after
// it. from is where the superblock ends; the copies that btrfs has of it stay.
var corruptions = map[string]struct {
	from, length int64
	says         string
}{
	"ext4":  {2 << 10, 60 << 20, "has errors that cannot be repaired automatically"},
	"xfs":   {512, 60 << 20, "cannot mount"},
	"btrfs": {68 << 10, 60<<20 - 4<<10, "cannot mount"},
}

// TestCorruptFileSystems: a file system whose structures are damaged is neither mounted nor formatted, nothing is left of the
// attempts, and the node goes on to serve other volumes.
func TestCorruptFileSystems(t *testing.T) {
	for fsType, c := range corruptions {
		for damage, put := range map[string]func(b *bench, device string){
			"zeros": func(b *bench, device string) { b.write(device, c.from, make([]byte, c.length)) },
			"noise": func(b *bench, device string) { b.noise(device, c.from, c.length) },
		} {
			t.Run(fsType+"/"+damage, func(t *testing.T) {
				b := newBench(t)
				device, staging := b.volume("v", 320), b.path("staging")
				b.must(b.stage("v", fsType, staging))
				b.must(os.WriteFile(filepath.Join(staging, "file"), make([]byte, megabytes), 0o600))
				b.must(b.unstage("v", staging))
				put(b, device)
				again := b.path("again")
				for range 2 {
					b.notMounted(b.stage("v", fsType, again), again, c.says)
				}
				if found := b.run("blkid", "-p", "-o", "value", "-s", "TYPE", device); found != fsType {
					t.Errorf("the device holds %q now, %s was on it", found, fsType)
				}
				other := b.path("other")
				b.volume("other", 320)
				b.must(b.stage("other", fsType, other))
				b.must(os.WriteFile(filepath.Join(other, "file"), []byte("data"), 0o600))
				b.must(b.unstage("other", other))
			})
		}
	}
}

// notMounted expects an error with the words, and nothing at the staging path.
func (b *bench) notMounted(err error, staging, words string) {
	b.t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		b.t.Errorf("staged: %v, want an error that says %q", err, words)
	}
	b.t.Logf("it says: %v (%v)", err, lvm.KindOf(err))
	if _, err := os.Lstat(staging); !os.IsNotExist(err) {
		b.t.Errorf("a staging path was left: %v", err)
	}
}

// TestErrorsOfAFileSystemDoNotStopTheNode: a superblock that asks for a panic at the first error is mounted with another behaviour. The
// kernel shows the option only where it differs from the superblock.
func TestErrorsOfAFileSystemDoNotStopTheNode(t *testing.T) {
	b := newBench(t)
	device, staging := b.volume("v", 64), b.path("staging")
	b.run("mkfs.ext4", "-q", "-e", "panic", device)
	b.run("tune2fs", "-E", "mount_opts=errors=panic", device)
	b.must(b.stage("v", "ext4", staging))
	options := b.run("findmnt", "-n", "-o", "OPTIONS", staging)
	if !strings.Contains(options, "errors=remount-ro") {
		t.Errorf("it is mounted with %s", options)
	}
	b.must(b.unstage("v", staging))
	if err := exec.CommandContext(t.Context(), "findmnt", staging).Run(); err == nil {
		t.Errorf("%s is still mounted", staging)
	}
}
