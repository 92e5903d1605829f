package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	gib = 1 << 30

	nodeMemory   = "2560M"
	rootDiskSize = 16 * gib // sparse
)

// node is one machine of the lab; its number determines all its properties.
type node struct {
	index int // from 1
}

// workers returns the lab's worker nodes.
func workers(count int) []node {
	nodes := make([]node, count)
	for i := range nodes {
		nodes[i].index = i + 1
	}
	return nodes
}

// golden is the node that prepares the workers' root image; it has no data disks.
var golden = node{index: 0}

func (n node) name() string {
	if n == golden {
		return "golden"
	}
	return fmt.Sprintf("node-%d", n.index)
}

func (n node) ip() string      { return fmt.Sprintf("10.88.0.%d", 10+n.index) }
func (n node) tap() string     { return fmt.Sprintf("tap%d", n.index) }
func (n node) mac() string     { return fmt.Sprintf("52:54:00:00:00:%02x", n.index) }
func (n node) podCIDR() string { return fmt.Sprintf("10.244.%d.0/24", n.index) }

// disks returns the sizes in bytes of the data disks: /dev/ubdb, /dev/ubdc, ... They differ between nodes, so that tests can
// observe placement by size.
func (n node) disks() []int64 {
	switch n.index {
	case 0:
		return nil
	case 2:
		return []int64{6 * gib, 6 * gib}
	case 3:
		return []int64{8 * gib, 16 * gib}
	default:
		return []int64{4 * gib, 4 * gib}
	}
}

// volumeGroup returns the name of the volume group that the node's admin creates from all data disks. Node 3's has another name;
// the tag "fast" is the same on all nodes.
func (n node) volumeGroup() string {
	if n.index == 3 {
		return "vg-big"
	}
	return "vg-data"
}

// role is the purpose of a node; files/init.sh acts on it.
type role string

const (
	roleBlank  role = "blank"  // LVM tests: blank disks, neither containerd nor kubelet
	roleGolden role = "golden" // prepares the root image
	roleWorker role = "worker" // joins the cluster
)

// machine is a node with the files that it runs from.
type machine struct {
	node
	role     role
	rootDisk string   // UML's notation: "FILE", or "COW,BASE" for copy-on-write over BASE
	disks    []string // data disk files
	attached []string // AttachDisk's disks, as words for the kernel's command line.
	share    string   // host folder, at /mnt/lab in the node
	umlDir   string   // where UML keeps its umid folder
	hardware bool     // qemu emulates it; rootDisk is then a qcow2 file over base
	base     string
	arch     string // as in UpOptions
	suite    string // of its kernel, as in UpOptions
	monitor  string // the socket of qemu's monitor
	reversed bool   // the kernel finds its disks in reverse order
}

// umlArgs returns the command line of user-mode Linux for m. The kernel passes words that it does not know to init as environment
// (lab_...).
func umlArgs(m machine) []string {
	args := []string{
		"umid=" + m.name(), "uml_dir=" + m.umlDir,
		"mem=" + nodeMemory,
		"ubda=" + m.rootDisk,
	}
	for i, d := range m.disks {
		args = append(args, fmt.Sprintf("ubd%c=%s", 'b'+i, d))
	}
	args = append(args, m.attached...)
	args = append(args,
		// Without gro, the kernel drops frames larger than the MTU; the host's TCP sends such frames.
		fmt.Sprintf("vec0:transport=tap,ifname=%s,mac=%s,depth=128,gro=1", m.tap(), m.mac()),
		"seccomp=auto",
		"root=/dev/ubda", "rw", "init=/sbin/lab-init", "panic=1",
		"con=null", "con0=null,fd:1") // con0 on a closed standard input would spin
	return append(args, m.bootWords()...)
}

func (l *Lab) nodeDir(n node) string { return filepath.Join(l.dir, "nodes", n.name()) }

// machine returns n with its files, for a boot from the root image base.
func (l *Lab) machine(n node, r role, base string) machine {
	m := machine{
		node: n, role: r, share: l.Share(), umlDir: filepath.Join(l.dir, "uml"),
		rootDisk: filepath.Join(l.nodeDir(n), "root.cow") + "," + base,
		attached: l.attachedDisks(n),
	}
	for i := range n.disks() {
		m.disks = append(m.disks, filepath.Join(l.nodeDir(n), fmt.Sprintf("disk%d.img", i+1)))
	}
	return m
}

// machineOf returns a node of the lab of st with its files.
func (l *Lab) machineOf(n node, st state) machine {
	if st.Hardware {
		return l.hardwareMachine(n, st)
	}
	return l.machine(n, st.role(), st.RootImage)
}

// createDisks creates the sparse files of m's data disks.
func (l *Lab) createDisks(m machine) error {
	if err := os.MkdirAll(l.nodeDir(m.node), 0o755); err != nil {
		return err
	}
	for i, size := range m.node.disks() {
		if err := createSparse(m.disks[i], size); err != nil {
			return err
		}
	}
	return nil
}

func createSparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// boot starts m and waits until it accepts commands.
func (l *Lab) boot(ctx context.Context, m machine) error {
	if l.alive(m.name()) {
		return fmt.Errorf("%s runs already", m.name())
	}
	if m.hardware {
		if err := l.startHardware(ctx, m); err != nil {
			return err
		}
		return l.waitBooted(ctx, m.name())
	}
	if err := l.startUML(ctx, m); err != nil {
		return err
	}
	if err := l.waitBooted(ctx, m.name()); err != nil {
		return err
	}
	return l.startTimerWorkaround(m.name())
}

// startUML starts user-mode Linux for m.
func (l *Lab) startUML(ctx context.Context, m machine) error {
	if err := os.RemoveAll(filepath.Join(m.umlDir, m.name())); err != nil {
		return err
	}
	kernel, err := l.kernel(ctx)
	if err != nil {
		return err
	}
	preload, err := l.preloadLibrary(ctx)
	if err != nil {
		return err
	}
	return l.startDaemon(daemon{
		name: m.name(), argv: append([]string{kernel.binary}, umlArgs(m)...), core: m.index, // pinning makes a node two to three times faster
		env: []string{"TMPDIR=/dev/shm", "LD_PRELOAD=" + preload}, // the node's memory is an unlinked file in TMPDIR
	})
}

// timerScript sends SIGALRM to process $1, which started at clock tick $2, each second until the process ends.
const timerScript = `while read -ra stat <"/proc/$1/stat" && [ "${stat[21]}" = "$2" ]; do kill -ALRM "$1"; sleep 1; done 2>/dev/null`

// startTimerWorkaround works around a lost timer signal in a node. The node's kernel has one timer of this machine, and sets it
// again after each signal. In rare cases (seen with Linux 6.1, once in dozens of clusters) it loses the signal and never sets the
// timer again; then every timeout and sleep in the node lasts forever. An additional signal is harmless.
func (l *Lab) startTimerWorkaround(name string) error {
	leader, found := l.recorded(name)
	if !found {
		return fmt.Errorf("%s has no record", name)
	}
	return l.startDaemon(daemon{
		name: name + ".clock", core: -1,
		argv: []string{"/bin/bash", "-c", timerScript, "clock", strconv.Itoa(leader.pid), strconv.FormatUint(leader.start, 10)},
	})
}

// bootTimeout is generous: a boot takes 3 s, 30 s on emulated hardware, but many times that on a busy machine. A process that stops meanwhile ends the wait at once.
const bootTimeout = 15 * time.Minute

func (l *Lab) waitBooted(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	for {
		if !l.alive(name) {
			return l.logged(name, fmt.Errorf("%s stopped while it booted", name))
		}
		err := l.answers(ctx, name)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return l.logged(name, fmt.Errorf("%s takes no commands: %w: %w", name, ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// answers returns nil if a node accepts commands. It first tries to connect with a short time limit: the kernel repeats an
// unanswered first packet only after a second, and the real connection would wait for that.
func (l *Lab) answers(ctx context.Context, name string) error {
	address, err := sshAddress(name)
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	knock, err := l.dial(brief, "tcp", address)
	if err != nil {
		return err
	}
	if err := knock.Close(); err != nil {
		return err
	}
	_, _, err = l.connection(ctx, name)
	return err
}

// killNode kills a node and its timer workaround.
func (l *Lab) killNode(name string) error {
	return errors.Join(l.killDaemon(name, 0), l.killDaemon(name+".clock", 0))
}

// PowerCut kills all processes of a node, as if its power were cut: data that the node has not flushed to its disks is lost.
func (l *Lab) PowerCut(name string) error {
	if _, err := l.node(name); err != nil {
		return err
	}
	if !l.alive(name) {
		return fmt.Errorf("%s is not running", name)
	}
	l.forgetConnection(name)
	return l.killNode(name)
}

// Boot starts a node after PowerCut, with its disks, and waits until it accepts commands. It does not wait for the kubelet to be
// Ready. At every second boot of a node on emulated hardware, its disks are in reverse order.
func (l *Lab) Boot(ctx context.Context, name string) error {
	n, err := l.node(name)
	if err != nil {
		return err
	}
	st, err := l.loadState()
	if err != nil {
		return err
	}
	return l.boot(ctx, l.machineOf(n, st))
}

// Replace boots a new machine under a node's name after PowerCut: its disks are blank, and nothing of the former one's is left.
func (l *Lab) Replace(ctx context.Context, name string) error {
	n, err := l.node(name)
	if err != nil {
		return err
	}
	if l.alive(name) {
		return fmt.Errorf("%s runs: cut its power before another machine takes its place", name)
	}
	st, err := l.loadState()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(l.nodeDir(n)); err != nil {
		return err
	}
	return l.firstBoot(ctx, l.machineOf(n, st))
}

// node returns a node of the running lab by name.
func (l *Lab) node(name string) (node, error) {
	nodes, err := l.nodes()
	if err != nil {
		return node{}, err
	}
	for _, n := range nodes {
		if n.name() == name {
			return n, nil
		}
	}
	return node{}, fmt.Errorf("no node %q in this lab; it has %s", name, strings.Join(l.NodeNames(), ", "))
}
