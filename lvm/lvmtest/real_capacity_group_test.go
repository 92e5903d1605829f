//go:build reallvm

package lvmtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// capacityGroup has six disks; those that a case does without are full.
const (
	capacityGroup = "nodelvm-capacity"
	capacityDisks = 6
	capacityDisk  = 24 // MiB, of which LVM's own metadata takes one
)

type capacityBench struct {
	driver *Driver
	dir    string
	disks  []string
}

func newCapacityBench(t *testing.T) *capacityBench {
	if _, err := os.Stat("/dev/mapper/control"); err != nil {
		tool(t, "modprobe", "dm-mod")
	}
	b := &capacityBench{dir: t.TempDir()}
	for i := range capacityDisks {
		disk := makeDisk(t, fmt.Sprint("capacity", i), capacityDisk)
		t.Cleanup(func() {
			tool(t, "losetup", "--detach", disk)
			must(t, os.Remove(filepath.Join("/dev/shm", fmt.Sprint(realGroup, "-capacity", i))))
		})
		admin(t, "pvcreate", "-y", "--norestorefile", "--uuid", capacityUUID("P", i), disk)
		b.disks = append(b.disks, disk)
	}
	t.Cleanup(func() { admin(t, "vgremove", "-ff", "-y", "-S", "vg_name="+capacityGroup) })
	b.restore(t, 1024, nil)
	b.driver = startReal(t, b.dir)
	t.Cleanup(func() { b.driver.close(t) })
	return b
}

func capacityUUID(kind string, n int) string {
	s := fmt.Sprintf("%s%031d", kind, n)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:]}, "-")
}

// restore makes the group what one text says: extents of so many KiB, of which the given runs on each disk are taken by
// volumes of somebody else. udev activates none of them: a group with active volumes cannot be restored.
func (b *capacityBench) restore(t *testing.T, extentKiB int, used [][]lvm.Run) {
	t.Helper()
	var pvs, segments strings.Builder
	start, count := 0, 0
	for i, disk := range b.disks {
		fmt.Fprintf(&pvs, "pv%d { id = %q\n device = %q\n status = [\"ALLOCATABLE\"]\n flags = []\n dev_size = %d\n pe_start = 2048\n pe_count = %d\n }\n",
			i, capacityUUID("P", i), disk, capacityDisk*2048, capacityExtents(extentKiB))
		if used == nil {
			continue
		}
		for _, run := range used[i] {
			count++
			fmt.Fprintf(&segments, "segment%d { start_extent = %d\n extent_count = %d\n type = \"striped\"\n stripe_count = 1\n stripes = [\"pv%d\", %d]\n }\n",
				count, start, run.Count, i, run.Start)
			start += int(run.Count)
		}
	}
	volumes := ""
	if count > 0 {
		volumes = fmt.Sprintf("logical_volumes {\n theirs { id = %q\n status = [\"READ\", \"WRITE\", \"VISIBLE\"]\n flags = []\n segment_count = %d\n %s }\n }\n",
			capacityUUID("L", 0), count, segments.String())
	}
	text := fmt.Sprintf("contents = \"Text Format Volume Group\"\nversion = 1\n%s {\n id = %q\n seqno = 1\n format = \"lvm2\"\n"+
		" status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\n flags = [\"NOAUTOACTIVATE\"]\n extent_size = %d\n max_lv = 0\n max_pv = 0\n metadata_copies = 0\n"+
		" physical_volumes {\n%s}\n%s}\n", capacityGroup, capacityUUID("G", 0), 2*extentKiB, pvs.String(), volumes)
	path := filepath.Join(b.dir, "group.txt")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	admin(t, "vgcfgrestore", "-f", path, capacityGroup)
}

// capacityExtents is how many extents a disk has behind LVM's metadata.
func capacityExtents(extentKiB int) int { return (capacityDisk - 1) * 1024 / extentKiB }
