package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// bus is how a disk of a node on emulated hardware is connected.
type bus string

const (
	busNVMe  bus = "nvme"  // with its own controller and slot
	busSCSI  bus = "scsi"  // the node's virtio-scsi controller
	busSCSI2 bus = "scsi2" // the second one
	busSATA  bus = "sata"  // the machine's AHCI controller, from which qemu removes no disk
)

// hardwareDisk is a disk of a node on emulated hardware, or a further path to one. Tests find it by its serial number, which is the disk's name:
// the kernel gives a disk that comes back another name.
type hardwareDisk struct {
	name   string
	bus    bus
	size   int64
	sector int // size of a logical block in bytes
	wwn    uint64
	pathTo string // the disk to which this is a further path; "": this is a disk
}

// wwnOfPaths is the World Wide Name of the disk with two paths.
const wwnOfPaths uint64 = 0x5000c500a1b2c3d4

// hardwareDisks are the disks of each node on emulated hardware.
var hardwareDisks = []hardwareDisk{
	{name: "nvme-a", bus: busNVMe, size: gib, sector: 512},
	{name: "nvme-b", bus: busNVMe, size: gib, sector: 512},
	{name: "nvme-c", bus: busNVMe, size: gib, sector: 512},
	{name: "nvme-4k-a", bus: busNVMe, size: gib, sector: 4096},
	{name: "nvme-4k-b", bus: busNVMe, size: gib, sector: 4096},
	{name: "nvme-4k-c", bus: busNVMe, size: gib, sector: 4096},
	{name: "nvme-4k-d", bus: busNVMe, size: gib, sector: 4096},
	{name: "nvme-4k-e", bus: busNVMe, size: gib, sector: 4096},
	{name: "scsi-a", bus: busSCSI, size: gib, sector: 512},
	{name: "scsi-4k-a", bus: busSCSI, size: gib, sector: 4096},
	{name: "scsi-4k-b", bus: busSCSI, size: gib, sector: 4096},
	{name: "large-a", bus: busSCSI, size: 4 * gib, sector: 512},
	{name: "large-b", bus: busSCSI, size: 4 * gib, sector: 512},
	{name: "sata-a", bus: busSATA, size: gib, sector: 512},
	{name: "path-1", bus: busSCSI, size: gib, sector: 512, wwn: wwnOfPaths},
	{name: "path-2", bus: busSCSI2, size: gib, sector: 512, wwn: wwnOfPaths, pathTo: "path-1"},
}

// kernelWords are the kernel's command line in a node on emulated hardware. A panic ends qemu, because of -no-reboot. SELinux has no policy until a
// test loads one, as in user-mode Linux; by default Debian's kernel has AppArmor in its place.
const kernelWords = "mitigations=off panic=-1 net.ifnames=0 security=selinux"

// thisArch is the architecture of this machine, and of nodes of user-mode Linux.
const thisArch = "amd64"

// platform is a processor that qemu emulates, and the machine around it.
type platform struct {
	pkg     string // Debian's package of qemu
	qemu    string
	machine []string // qemu's arguments
	console string
}

// platforms are those of the architectures, named as GOARCH.
var platforms = map[string]platform{
	thisArch: {"qemu-system-x86", "/usr/bin/qemu-system-x86_64", []string{"-machine", "q35", "-cpu", "max", "-m", "2560M"}, "ttyS0"},
	// qemu takes long to sign pointers as the architecture says (QEMU, Arm CPU Features). The board comes without an AHCI controller.
	"arm64": {"qemu-system-arm", "/usr/bin/qemu-system-aarch64", []string{
		"-machine", "virt", "-cpu", "max,pauth-impdef=on", "-m", "2048M", "-device", "ich9-ahci,id=ide",
	}, "ttyAMA0"},
}

// qemuArgs returns qemu's command line for m. Each NVMe controller is behind a root port, which is what makes it removable. All disks
// are block devices with their own names, so that a disk that is pulled keeps its content, and errors can be put below it.
func qemuArgs(m machine, k hardwareKernel) []string {
	p := platforms[m.arch]
	args := slices.Concat(p.machine, []string{
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-accel", "tcg,thread=multi,tb-size=512", "-smp", "2",
		"-kernel", k.image, "-initrd", k.initrd, "-append", strings.Join(append([]string{"console=" + p.console, kernelWords}, m.bootWords()...), " "),
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-qmp", "unix:" + m.monitor + ",server=on,wait=off",
		"-device", "virtio-rng-pci",
		"-netdev", "tap,id=net,ifname=" + m.tap() + ",script=no,downscript=no", "-device", "virtio-net-pci,netdev=net,mac=" + m.mac(),
		"-fsdev", "local,id=share,security_model=passthrough,multidevs=remap,path=" + m.share, "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
		"-fsdev", "local,id=modules,security_model=passthrough,readonly=on,path=" + k.modules, "-device", "virtio-9p-pci,fsdev=modules,mount_tag=modules",
		// User-mode Linux locks the image while nodes boot from it. None of them writes to it.
		"-blockdev", "driver=qcow2,node-name=root,file.driver=file,file.filename=" + m.rootDisk +
			",backing.driver=raw,backing.file.driver=file,backing.file.locking=off,backing.file.filename=" + m.base,
		"-device", "virtio-blk-pci,drive=root",
		"-device", "virtio-scsi-pci,id=scsi", "-device", "virtio-scsi-pci,id=scsi2",
	})
	for at := range hardwareDisks {
		i := at
		if m.reversed {
			i = len(hardwareDisks) - 1 - at
		}
		d := hardwareDisks[i]
		if d.pathTo == "" {
			args = append(args,
				"-blockdev", "driver=file,node-name="+d.fileNode()+",discard=unmap,filename="+m.disks[i],
				"-blockdev", "driver=raw,node-name="+d.name+",discard=unmap,detect-zeroes=unmap,file="+d.fileNode())
		}
		if d.bus == busNVMe {
			args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,slot=%d", d.slot(), i+1, i+1))
		}
		args = append(args, "-device", commaList(d.device()))
	}
	return args
}

// bootWords are the words for init in the kernel's command line.
func (m machine) bootWords() []string {
	words := []string{
		"lab_role=" + string(m.role), "lab_node=" + m.name(), "lab_ip=" + m.ip(),
		fmt.Sprintf("lab_index=%d", m.index), "lab_group=" + m.volumeGroup(),
	}
	if m.hardware {
		return append(words, "lab_hardware=1")
	}
	return append(words, "lab_share="+m.share)
}

// disk returns the name of the disk.
func (d hardwareDisk) disk() string { return cmp.Or(d.pathTo, d.name) }

func (d hardwareDisk) fileNode() string { return d.name + "-file" }
func (d hardwareDisk) slot() string     { return "slot-" + d.name }
func (d hardwareDisk) deviceID() string { return "disk-" + d.name }

// device returns the properties of d's device, as for QMP's device_add.
func (d hardwareDisk) device() map[string]any {
	properties := map[string]any{
		"id": d.deviceID(), "serial": d.disk(), "drive": d.disk(),
		"logical_block_size": d.sector, "physical_block_size": 4096,
	}
	switch d.bus {
	case busNVMe:
		properties["driver"], properties["bus"] = "nvme", d.slot()
	case busSCSI, busSCSI2:
		properties["driver"], properties["bus"] = "scsi-hd", string(d.bus)+".0"
	case busSATA:
		properties["driver"], properties["bus"] = "ide-hd", "ide.0"
	}
	if d.wwn != 0 {
		properties["wwn"], properties["share-rw"] = d.wwn, true
	}
	return properties
}

// commaList returns the properties of a device as one argument of qemu, the driver first.
func commaList(properties map[string]any) string {
	list := fmt.Sprint(properties["driver"])
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if key != "driver" {
			list += fmt.Sprintf(",%s=%v", key, properties[key])
		}
	}
	return list
}

// findHardwareDisk returns a disk by its name.
func findHardwareDisk(name string) (hardwareDisk, error) {
	names := make([]string, len(hardwareDisks))
	for i, d := range hardwareDisks {
		if d.name == name {
			return d, nil
		}
		names[i] = d.name
	}
	return hardwareDisk{}, fmt.Errorf("a node on emulated hardware has no disk %q; it has %s", name, strings.Join(names, ", "))
}

// createHardwareDisks creates the files of m's disks, and that of its root disk: a copy-on-write file over m.base.
func (l *Lab) createHardwareDisks(ctx context.Context, m machine) error {
	if err := os.MkdirAll(l.nodeDir(m.node), 0o755); err != nil {
		return err
	}
	for i, d := range hardwareDisks {
		if d.pathTo != "" {
			continue
		}
		if err := createSparse(m.disks[i], d.size); err != nil {
			return err
		}
	}
	return l.tool(ctx, "root-disk", "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", m.base, m.rootDisk)
}

// hardwareMachine returns a node of the lab of st, on emulated hardware, with its files.
func (l *Lab) hardwareMachine(n node, st state) machine {
	dir := l.nodeDir(n)
	m := machine{
		node: n, role: st.role(), hardware: true, arch: st.Arch, suite: st.HardwareSuite, share: l.Share(), base: st.RootImage,
		rootDisk: filepath.Join(dir, "root.qcow2"), monitor: filepath.Join(dir, "qmp.sock"),
	}
	for _, d := range hardwareDisks {
		m.disks = append(m.disks, filepath.Join(dir, d.name+".img"))
	}
	return m
}

// reversesDisks reports whether the kernel of a node finds the disks in reverse order at this boot, as it does at every second one: their names
// are then others.
func (l *Lab) reversesDisks(n node) (bool, error) {
	mark := filepath.Join(l.nodeDir(n), "reverse-next")
	err := os.Remove(mark)
	if !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	return false, os.WriteFile(mark, nil, 0o600)
}

// startHardware starts qemu for m. Its two processors are threads, which no one pins.
func (l *Lab) startHardware(ctx context.Context, m machine) (err error) {
	if m.reversed, err = l.reversesDisks(m.node); err != nil {
		return err
	}
	k, err := l.hardwareKernel(ctx, m.arch, m.suite)
	if err != nil {
		return err
	}
	if err := ignoreMissing(os.Remove(m.monitor)); err != nil { // of the last boot
		return err
	}
	return l.startDaemon(daemon{name: m.name(), argv: append([]string{platforms[m.arch].qemu}, qemuArgs(m, k)...), core: -1})
}
