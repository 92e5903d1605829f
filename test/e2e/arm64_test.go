//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
)

// arm64Jobs are the tests that pass on an emulated processor. Those left out need what TestLVMOnArm64 names, or udev for names in
// /dev. TestPrepare needs the node's own root. TestCapacity takes as long as all others.
var arm64Jobs = []job{
	onArm64(onRealLVM("conformance")),
	onArm64(onRealLVM("dataleak")),
	onArm64(onRealLVM("identity")).without("^TestDeviceNames_RealLVM$"),
	onArm64(onRealLVM("diskfailure")),
	onArm64(onRealLVM("thinpool")),
	onArm64(onRealLVM("operations")),
	onArm64(job{name: "filesystems", dir: "../..", tag: "realfs", pkg: "./node", tests: []string{"OnDisk$", "StageToUnstageTwice$", "^TestForeignContent"}}),
	onArm64(job{name: "encryption", dir: "../..", tag: "realfs", pkg: "./node/luks", tests: []string{
		"^TestRealBlock$", "^TestRealSnapshot$", "^TestRealRefusals$", "^TestRealMappingHeldByAnother$",
		"^TestReal(Format|Open|Expansion|Erase)StoppedAtEachStep$",
	}}),
}

// onArm64 returns the job with another name, in the image.
func onArm64(j job) job {
	j.name, j.inImage = "arm64-"+j.name, true
	return j
}

func (j job) without(tests string) job {
	j.skip = tests
	return j
}

// TestLVMOnArm64 runs each tool of the driver's image for arm64, and then tests on real LVM in that image. The tests, LVM and all other
// programs are those of arm64, on a processor that qemu emulates. The kernel and device-mapper are a lab node's.
//
// qemu's user mode, at least up to 11.1, lacks:
//   - changes of a mounted file system (EXT4_IOC_RESIZE_FS, XFS_IOC_FSGROWFSDATA, BTRFS_IOC_RESIZE), and the geometry of a mounted XFS.
//     Version 7.2 lacks FITRIM and FIFREEZE, too.
//   - ptrace(2) and seccomp(2), with which the tests of crashes stop lvm, and children in new namespaces (clone).
//   - the kernel's keyring (add_key). cryptsetup puts the volume key into the table instead.
//   - finit_module. The node loads the modules.
//   - asynchronous I/O (io_setup). LVM reads and writes synchronously.
//
// files/emulated-ioctl.c corrects three ioctls of device-mapper, and answers two of block devices.
func TestLVMOnArm64(t *testing.T) {
	l := raiseNodes(t, "arm64", 1)
	root := unpackImage(t, l, "arm64")
	compile(t, "..", "build", "-o", labCommand(l), "./cmd/lab")
	compileFor(t, "arm64", "../..", "build", "-o", filepath.Join(root, "nodelvm"), "./cmd/nodelvm")
	for _, j := range arm64Jobs {
		compileFor(t, "arm64", j.dir, "test", "-c", "-tags", j.tag, "-o", filepath.Join(l.Share(), j.name+".test"), j.pkg)
	}
	emulate(t, l, root)
	if !t.Run("tools", func(t *testing.T) { runTools(t, l) }) {
		t.Fatal("the other jobs need these tools, and the disks that the volume group arm64 still has")
	}
	for _, j := range arm64Jobs {
		t.Run(j.name, func(t *testing.T) { j.run(t, l, "node-1") })
	}
}

// emulate lets node-1 run programs of arm64, and makes the unpacked image a root for them. A binary format with the flag F has its
// interpreter open, and so works in any root (Linux, Documentation/admin-guide/binfmt-misc.rst).
func emulate(t *testing.T, l *lab.Lab, root string) {
	t.Helper()
	for _, argv := range [][]string{
		{"cp", "/usr/bin/" + emulator, filepath.Join(l.Share(), emulator)},
		{"aarch64-linux-gnu-gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-nostdlib", "-o", filepath.Join(root, preloaded), "files/emulated-ioctl.c"},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v (apt-get install qemu-user-static gcc-aarch64-linux-gnu libc6-dev-arm64-cross)\n%s", argv[0], err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/ld.so.preload"), []byte(preloaded+"\n"), 0o644); err != nil { //nolint:gosec // all programs read it
		t.Fatal(err)
	}
	// Programs that tests start and the image lacks. This one is static, of the node's processor.
	for _, name := range []string{"true", "dd", "sync", "sha256sum", "mkfs.vfat"} {
		if out, err := exec.CommandContext(t.Context(), "cp", "/bin/busybox", filepath.Join(root, "usr/bin", name)).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// As in a pod, LVM does not wait for udev, and starts no dmeventd.
	local := "activation { udev_sync=0 udev_rules=0 monitoring=0 }\n"
	if err := os.WriteFile(filepath.Join(root, "etc/lvm/lvmlocal.conf"), []byte(local), 0o644); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	runOnNode(t, l, "node-1", nil, "sh", "-exc", prepareEmulation)
	runOnNode(t, l, "node-1", strings.NewReader(binaryFormat), "sh", "-c", "cat >/proc/sys/fs/binfmt_misc/register")
}

const (
	emulator  = "qemu-aarch64-static"
	preloaded = "/usr/lib/emulated-ioctl.so"
	// binaryFormat matches the first bytes of an ELF file for arm64: 0xb7 is EM_AARCH64.
	binaryFormat = `:arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00` +
		`:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/mnt/lab/` + emulator + `:F`
	// The tests cannot tell the node's udev about their rules, as the image has no udevadm: without them it activates their volumes.
	prepareEmulation = `udevadm control --exit
rm -f /run/udev/control
modprobe -a binfmt_misc loop dm-mod dm-raid dm-thin-pool dm-snapshot dm-mirror dm-crypt ext4 xfs btrfs
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
mkdir -p /tmp/volume ` + imageInNode + `/mnt/lab
mount --bind /mnt/lab ` + imageInNode + `/mnt/lab
for dir in /dev /proc /sys /run /tmp; do mkdir -p ` + imageInNode + `$dir; mount --rbind $dir ` + imageInNode + `$dir; done`
)

// inImage is what starts a program in the image. Without G_SLICE, a child of qemu 7.2 can wait for ever for a lock that a thread of its
// parent had when it was started (QEMU issue 285).
func inImage() []string {
	return []string{"env", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "G_SLICE=always-malloc", "chroot", imageInNode}
}

// runTools runs what toolRuns lists; each needs what the ones before it made.
func runTools(t *testing.T, l *lab.Lab) {
	for _, run := range toolRuns {
		out := runOnNode(t, l, "node-1", nil, append(inImage(), strings.Fields(run.command)...)...)
		if !strings.Contains(out, run.prints) {
			t.Fatalf("%s printed no %q:\n%s", run.command, run.prints, out)
		}
	}
}

// toolRuns are commands of the image, in order, and what each must print. The volume group arm64 has both disks of the node.
var toolRuns = []struct{ command, prints string }{
	{"/nodelvm version", "devel"},
	{"lvm vgcreate -y arm64 /dev/ubdb /dev/ubdc", "created"},
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
	{"umount /tmp/volume", ""},
	{"lvm lvextend -L +100m arm64/linear", "successfully resized"},
	{"dmsetup table arm64-linear", "819200 204800 linear"}, // two targets
	{"fsck.ext4 -f -p /dev/arm64/linear", "non-contiguous"},
	{"resize2fs /dev/arm64/linear", "512000"},
	{"wipefs -a /dev/arm64/linear", "ext4"},
	{"mkfs.xfs -q /dev/arm64/linear", ""},
	{"blkid -p -o value -s TYPE /dev/arm64/linear", "xfs"},
	{"mount /dev/arm64/linear /tmp/volume", ""},
	{"umount /tmp/volume", ""},
	{"wipefs -a /dev/arm64/linear", "xfs"},
	{"mkfs.btrfs -q /dev/arm64/linear", ""},
	{"blkid -p -o value -s TYPE /dev/arm64/linear", "btrfs"},
	{"mount /dev/arm64/linear /tmp/volume", ""},
	{"umount /tmp/volume", ""},
	{"btrfs check /dev/arm64/linear", "no error found"},
	{"wipefs -a /dev/arm64/linear", "btrfs"},

	{"cryptsetup luksFormat -q --pbkdf argon2id --pbkdf-memory 32768 --pbkdf-force-iterations 4 --key-file /etc/debian_version /dev/arm64/linear", ""},
	{"cryptsetup open --key-file /etc/debian_version /dev/arm64/linear arm64-plain", ""},
	{"cryptsetup status arm64-plain", "LUKS2"},
	{"cryptsetup resize --key-file /etc/debian_version arm64-plain", ""},
	{"cryptsetup close arm64-plain", ""},

	{"lvm lvremove -y arm64/copy arm64/thin arm64/pool arm64/raid1 arm64/striped arm64/linear", "successfully removed"},
	{"dmsetup ls", "No devices found"},
	{"lvm vgremove -y arm64", "successfully removed"},
}
