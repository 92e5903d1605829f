//go:build reallvm

package capacity

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// capacitySizes are the sizes of the disks in MiB, of which LVM's metadata takes one. Each case uses some of them.
var capacitySizes = []int{24, 17, 40, 21, 33, 28}

// capacityBench creates one group after the other on the same disks. A case takes as few processes as possible: one LVM process
// for the group, one or two for the volume, one to read it, and one that removes the devices.
type capacityBench struct {
	driver *hosttest.Driver
	dir    string
	disks  []string
	blank  [][]byte // the beginning of each disk while it is in no group
}

func newCapacityBench(t *testing.T) *capacityBench {
	if _, err := os.Stat("/dev/mapper/control"); err != nil {
		reallvm.Tool(t, "modprobe", "dm-mod")
	}
	b := &capacityBench{dir: t.TempDir()}
	for i, size := range capacitySizes {
		disk := reallvm.MakeDisk(t, fmt.Sprint("capacity", i), size)
		t.Cleanup(func() {
			reallvm.Tool(t, "losetup", "--detach", disk)
			hosttest.Must(t, os.Remove(filepath.Join("/dev/shm", fmt.Sprint(reallvm.Group, "-capacity", i))))
		})
		b.disks = append(b.disks, disk)
	}
	// No delayed commit tags new volumes as ready: that would be one more process for each case.
	b.driver = reallvm.StartDriverWith(t, b.dir, func(cfg *lvm.Config) { cfg.ReadyDelay = time.Hour })
	t.Cleanup(func() {
		b.clear(t)
		b.restore(t, capacityDraw{extentKiB: 1024, disks: []capacityDisk{{extents: 16}}})
		b.driver.Stop(t)
		b.clear(t)
	})
	for i, disk := range b.disks {
		b.lvm(t, "pvcreate", "-y", "--norestorefile", "--uuid", capacityUUID("P", i), disk)
		head := make([]byte, 8192) // the label, and the header of the metadata area
		f, err := os.Open(disk)
		hosttest.Must(t, err)
		_, err = f.ReadAt(head, 0)
		hosttest.Must(t, err)
		hosttest.Must(t, f.Close())
		b.blank = append(b.blank, head)
	}
	return b
}

// lvm runs an LVM command with the driver's configuration and on these disks only: it takes a fraction of the time.
func (b *capacityBench) lvm(t testing.TB, command string, args ...string) string {
	t.Helper()
	args = append([]string{command, "--devices", strings.Join(b.disks, ",")}, args...)
	cmd := exec.CommandContext(context.Background(), "lvm", args...)
	cmd.Env = append(os.Environ(), "LVM_SYSTEM_DIR="+filepath.Join(b.dir, "etc"))
	return reallvm.Output(t, cmd)
}

func capacityUUID(kind string, n int) string {
	s := fmt.Sprintf("%s%031d", kind, n)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:]}, "-")
}

// capacityDraw describes a group: the first of the disks, with so many extents each, and the runs on them that other volumes
// have.
type capacityDraw struct {
	extentKiB int
	disks     []capacityDisk
}

type capacityDisk struct {
	extents int
	used    []lvm.Run
	closed  bool // not allocatable (pvchange -xn)
}

// restore creates the group as drawn, on disks that are in no group.
func (b *capacityBench) restore(t testing.TB, draw capacityDraw) {
	t.Helper()
	var pvs, volumes strings.Builder
	theirs := 0
	for i, disk := range draw.disks {
		status := `"ALLOCATABLE"`
		if disk.closed {
			status = ""
		}
		fmt.Fprintf(&pvs, "pv%d { id = %q\n device = %q\n status = [%s]\n flags = []\n dev_size = %d\n pe_start = 2048\n pe_count = %d\n }\n",
			i, capacityUUID("P", i), b.disks[i], status, capacitySizes[i]*2048, disk.extents)
		for _, run := range disk.used {
			fmt.Fprintf(&volumes, "theirs%d { id = %q\n status = [\"READ\", \"WRITE\", \"VISIBLE\"]\n flags = []\n segment_count = 1\n"+
				" segment1 { start_extent = 0\n extent_count = %d\n type = \"striped\"\n stripe_count = 1\n stripes = [\"pv%d\", %d]\n }\n }\n",
				theirs, capacityUUID("L", theirs), run.Count, i, run.Start)
			theirs++
		}
	}
	logical := ""
	if theirs > 0 {
		logical = "logical_volumes {\n" + volumes.String() + "}\n"
	}
	text := fmt.Sprintf("contents = \"Text Format Volume Group\"\nversion = 1\n%s {\n id = %q\n seqno = 1\n format = \"lvm2\"\n"+
		" status = [\"RESIZEABLE\", \"READ\", \"WRITE\"]\n flags = [\"NOAUTOACTIVATE\"]\n extent_size = %d\n max_lv = 0\n max_pv = 0\n metadata_copies = 0\n"+
		" physical_volumes {\n%s}\n%s}\n", reallvm.CapacityGroup, capacityUUID("G", 0), 2*draw.extentKiB, pvs.String(), logical)
	path := filepath.Join(b.dir, "group.txt")
	hosttest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	b.lvm(t, "vgcfgrestore", "-f", path, reallvm.CapacityGroup)
}

// clear removes the group's devices and its metadata, in any state.
func (b *capacityBench) clear(t testing.TB) {
	t.Helper()
	if names := b.devices(t); len(names) > 0 {
		reallvm.Tool(t, "dmsetup", append([]string{"remove", "--noudevsync", "--retry"}, names...)...)
	}
	hosttest.Must(t, os.RemoveAll(filepath.Join("/dev", reallvm.CapacityGroup))) // links that LVM created
	for i, head := range b.blank {
		reallvm.Overwrite(t, b.disks[i], head)
	}
}

// devices names the group's device-mapper devices, each before those below it.
func (b *capacityBench) devices(t testing.TB) []string {
	t.Helper()
	folders, err := filepath.Glob("/sys/block/dm-*")
	hosttest.Must(t, err)
	depths := map[string]int{}
	for _, folder := range folders {
		uuid, err := os.ReadFile(filepath.Join(folder, "dm/uuid"))
		hosttest.Must(t, err)
		if !strings.HasPrefix(string(uuid), lvmtest.DeviceUUID(capacityUUID("G", 0), "")) {
			continue
		}
		name, err := os.ReadFile(filepath.Join(folder, "dm/name"))
		hosttest.Must(t, err)
		depths[strings.TrimSpace(string(name))] = depth(t, folder)
	}
	return slices.SortedFunc(maps.Keys(depths), func(a, b string) int { return cmp.Compare(depths[b], depths[a]) })
}

// depth is how many layers of devices a device has below it.
func depth(t testing.TB, folder string) (deepest int) {
	t.Helper()
	below, err := filepath.Glob(filepath.Join(folder, "slaves/dm-*"))
	hosttest.Must(t, err)
	for _, slave := range below {
		deepest = max(deepest, 1+depth(t, slave))
	}
	return deepest
}
