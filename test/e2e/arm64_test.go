//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
)

// arm64Disks are the serial numbers of the blank disks of the jobs.
var arm64Disks = []string{"large-a", "large-b"}

// notOnArm64 are tests of gateJobs, as their jobs select them, that do not run on arm64.
var notOnArm64 = []string{
	"^TestRemovedDiskIsBack_RealLVM$", "^TestRemovedPath_RealLVM$", // Debian's kernel for arm64 has no scsi_debug
}

// arm64Jobs returns the jobs of make test without notOnArm64.
func arm64Jobs() (selected []job) {
	for _, j := range gateJobs() {
		j.tests = slices.DeleteFunc(slices.Clone(j.tests), func(test string) bool { return slices.Contains(notOnArm64, test) })
		if j.of = "TestLVMOnArm64"; len(j.tests) > 0 {
			selected = append(selected, j)
		}
	}
	return selected
}

// TestLVMOnArm64 runs each tool of the driver's image for arm64, and then tests on real LVM in a node on emulated hardware with that processor.
// The tests, LVM, the image's programs and Debian's stock kernel are those of arm64. NODELVM_TEST_JOB and NODELVM_TEST_RUN select one job
// and its tests.
func TestLVMOnArm64(t *testing.T) {
	l := raise(t, "arm64", lab.UpOptions{Nodes: 1, Hardware: true, Arch: "arm64"})
	slowDown(t)
	disks := disksBySerial(t, l, arm64Disks)
	unpackOnDisk(t, l)
	if !t.Run("tools", func(t *testing.T) { runTools(t, l, disks) }) {
		t.Fatal("the other jobs need these tools, and the disks that the volume group arm64 still has")
	}
	selected := onlyJob(arm64Jobs())
	for i := range selected {
		selected[i].disks = disks
	}
	t.Run("jobs", func(t *testing.T) { runJobs(t, l, selected) })
}

// unpackOnDisk unpacks the image on the node's disk, too, and mounts that in place of the one on the share: programs start several times as fast.
func unpackOnDisk(t *testing.T, l *lab.Lab) {
	t.Helper()
	unpackImage(t, l)
	base, err := l.DriverBase(t.Context(), l.Arch())
	must(t, err)
	archive, err := os.Open(base)
	must(t, err)
	defer func() { must(t, archive.Close()) }()
	runOnNode(t, l, "node-1", archive, "sh", "-exc", `mkdir -p /image && tar -xz -C /image && mount --bind /image `+imageInNode)
}

// prepareRoot makes the unpacked image a root for programs, with the node's devices. As in a pod, LVM does not wait for udev, and starts no dmeventd.
const prepareRoot = `cp /mnt/lab/nodelvm ` + imageInNode + `
echo "activation { udev_sync=0 udev_rules=0 monitoring=0 }" >` + imageInNode + `/etc/lvm/lvmlocal.conf
mkdir -p /tmp/volume
for dir in /dev /proc /sys /run /tmp /usr/lib/modules; do mkdir -p ` + imageInNode + `$dir; mount --rbind --make-rslave $dir ` + imageInNode + `$dir; done`

// leaveRoot undoes these mounts: in the node a volume of a later test would be mounted twice.
const leaveRoot = `for dir in /dev /proc /sys /run /tmp /usr/lib/modules; do umount --recursive ` + imageInNode + `$dir; done`

// runInImage runs a command in the image when the node's udev has closed the devices again that the one before it changed.
const runInImage = "udevadm settle; exec chroot " + imageInNode + ` "$@"`

// runTools runs what toolRuns lists in the unpacked image; each needs what the ones before it made.
func runTools(t *testing.T, l *lab.Lab, disks []string) {
	compileFor(t, l.Arch(), "../..", "build", "-o", filepath.Join(l.Share(), "nodelvm"), "./cmd/nodelvm")
	runOnNode(t, l, "node-1", nil, "sh", "-exc", prepareRoot)
	defer runOnNode(t, l, "node-1", nil, "sh", "-exc", leaveRoot)
	for _, run := range toolRuns {
		argv := strings.Fields(strings.ReplaceAll(run.command, "DISKS", strings.Join(disks, " ")))
		out := runOnNode(t, l, "node-1", nil, append([]string{"sh", "-c", runInImage, "sh"}, argv...)...)
		if !strings.Contains(out, run.prints) {
			t.Fatalf("%s printed no %q:\n%s", run.command, run.prints, out)
		}
	}
}

// toolRuns are commands of the image, in order, and what each must print. DISKS stands for the node's disks.
var toolRuns = []struct{ command, prints string }{
	{"/nodelvm version", "devel"},
	{"lvm vgcreate -y arm64 DISKS", "created"},
	{"lvm lvcreate -y -L 400m -n linear arm64", "created"},
	{"lvm lvcreate -y --type striped -i 2 -L 64m -n striped arm64", "created"},
	{"lvm lvcreate -y --type raid1 -m 1 -L 64m -n raid1 arm64", "created"},
	{"lvm lvcreate -y --type thin-pool -L 128m -n pool arm64", "created"},
	{"lvm lvcreate -y -V 200m --thinpool pool -n thin arm64", "created"},
	{"lvm lvcreate -y -s -n copy arm64/thin", "created"},
	{"lvm lvextend -L +64m arm64/pool", "successfully resized"},
	{"lvm vgchange -an arm64", "0 logical volume(s)"}, // thin_check, too
	{"lvm vgchange -ay -K arm64", "6 logical volume(s)"},
	{"lvm lvs --noheadings -o lv_attr arm64/linear", "-wi-a-----"},

	{"mkfs.ext4 -q /dev/arm64/linear", ""},
	{"blkid -p -o value -s TYPE /dev/arm64/linear", "ext4"},
	{"mount /dev/arm64/linear /tmp/volume", ""},
	{"lvm lvextend -L +100m arm64/linear", "successfully resized"},
	{"dmsetup table arm64-linear", "819200 204800 linear"}, // two targets
	{"resize2fs /dev/arm64/linear", "on-line resizing"},
	{"umount /tmp/volume", ""},
	{"fsck.ext4 -f -p /dev/arm64/linear", "non-contiguous"},
	{"wipefs -a /dev/arm64/linear", "ext4"},
	{"mkfs.xfs -q /dev/arm64/linear", ""},
	{"blkid -p -o value -s TYPE /dev/arm64/linear", "xfs"},
	{"mount /dev/arm64/linear /tmp/volume", ""},
	{"lvm lvextend -L +16m arm64/linear", "successfully resized"},
	{"xfs_growfs /tmp/volume", "data blocks changed"},
	{"umount /tmp/volume", ""},
	{"wipefs -a /dev/arm64/linear", "xfs"},
	{"mkfs.btrfs -q /dev/arm64/linear", ""},
	{"blkid -p -o value -s TYPE /dev/arm64/linear", "btrfs"},
	{"mount /dev/arm64/linear /tmp/volume", ""},
	{"lvm lvextend -L +16m arm64/linear", "successfully resized"},
	{"btrfs filesystem resize max /tmp/volume", "Resize"},
	{"umount /tmp/volume", ""},
	{"btrfs check /dev/arm64/linear", "no error found"},
	{"wipefs -a /dev/arm64/linear", "btrfs"},

	{"cryptsetup luksFormat -q --pbkdf argon2id --pbkdf-memory 32768 --pbkdf-force-iterations 4 --key-file /etc/debian_version /dev/arm64/linear", ""},
	{"cryptsetup open --key-file /etc/debian_version /dev/arm64/linear arm64-plain", ""},
	{"cryptsetup status arm64-plain", "key location: keyring"},
	{"cryptsetup resize --key-file /etc/debian_version arm64-plain", ""},
	{"cryptsetup close arm64-plain", ""},

	{"lvm lvremove -y arm64/copy arm64/thin arm64/pool arm64/raid1 arm64/striped arm64/linear", "successfully removed"},
	{"dmsetup ls", "No devices found"},
	{"lvm vgremove -y arm64", "successfully removed"},
}
