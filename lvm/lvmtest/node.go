package lvmtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
)

// ExtentSize is the extent size of every group of a fake node: LVM's default.
const ExtentSize = 4 * lvm.MiB

// Group is an initial volume group of a fake node.
type Group struct {
	Name  string
	Tags  []string
	Disks []lvm.Bytes // the size of each physical volume
}

// Node is a fake node. Its methods are safe for concurrent use.
type Node struct {
	mu              sync.Mutex
	before          func(argv []string)
	groups          []*group
	devices         []*device
	serial          int // the last UUID and device number
	calls           int
	commands        []lvm.Command
	fault           *Fault
	filled          map[string]lvm.Bytes // by the UUID of a thin volume: the bytes written to it
	halved          bool                 // kill the running command half-way.
	messagesCounted bool                 // kill the running command once a pool has counted its messages.
	pools           map[string]*poolKernel
	numbers         map[string]int  // by the UUID of a thin volume: its number in the pool
	readOnly        map[string]bool // By the UUID of a volume: LVM's permission.
	skipped         map[string]bool // By the UUID of a volume: it needs -K.
	spares          map[string]bool // By the UUID of a volume: an unfinished spare for pool metadata.
	names           map[string]bool // in /dev/mapper, created by an admin's lvm
	lacks           map[string]lvm.TargetState
	held            chan struct{} // closed when wipes may continue; nil if none is held
	ignored         []lvm.UnacceptedPV
}

// NewNode returns a node with these groups.
func NewNode(groups ...Group) *Node {
	n := &Node{filled: map[string]lvm.Bytes{}, pools: map[string]*poolKernel{}, numbers: map[string]int{}, spares: map[string]bool{}, readOnly: map[string]bool{}, skipped: map[string]bool{}, names: map[string]bool{}}
	disk := 0
	for _, g := range groups {
		made := &group{Group: lvm.Group{
			UUID: lvm.VGUUID(n.uuid()), Name: lvm.VGName(g.Name), Tags: g.Tags, Seqno: 1, ExtentSize: ExtentSize, MDASize: 522240, MDAFree: 521216,
		}}
		for _, size := range g.Disks {
			made.PVs = append(made.PVs, lvm.PV{
				UUID: n.uuid(), Device: fmt.Sprintf("/dev/fake%c", 'a'+disk), Extents: lvm.Extents(size / ExtentSize), Allocatable: true,
			})
			disk++
		}
		n.groups = append(n.groups, made)
	}
	return n
}

// NewHost returns a started Host on a fake node with these groups, closed when the test ends.
func NewHost(t testing.TB, groups ...Group) *host.Host {
	t.Helper()
	return NewNode(groups...).Start(t, lvm.Config{})
}

// Start starts a driver on the node, as after a restart of its pod, and closes it when the test ends. It does not use cfg's
// directories.
func (n *Node) Start(t testing.TB, cfg lvm.Config) *host.Host {
	t.Helper()
	host := n.Host(cfg)
	if err := host.Start(context.Background()); err != nil {
		t.Fatalf("starting on a fake node: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := host.Close(ctx); err != nil {
			t.Errorf("closing the host: %v", err)
		}
	})
	return host
}

// Host returns a driver that is not started.
func (n *Node) Host(cfg lvm.Config) *host.Host {
	cfg.CacheTTL = cmp.Or(cfg.CacheTTL, -1) // an admin's change shows at once
	return n.HostOn(cfg, lvm.Machine{})
}

// HostOn returns a driver, not started, on a machine; the node provides what the machine lacks.
func (n *Node) HostOn(cfg lvm.Config, m lvm.Machine) *host.Host {
	if m.Runner == nil {
		m.Runner = runner{n, cfg.Observe}
	}
	if m.Kernel == nil {
		m.Kernel = kernel{n}
	}
	if m.Reader == nil {
		m.Reader = reader{n}
	}
	if m.Delta == nil {
		m.Delta = delta{n}
	}
	return host.NewHostOn(cfg, m)
}

// Runner runs LVM commands on the node. Config.Observe does not see them.
func (n *Node) Runner() lvm.Runner { return runner{n, nil} }

// Kernel is the node's kernel.
func (n *Node) Kernel() lvm.Kernel { return kernel{n} }

// Reader reads the node's disks.
func (n *Node) Reader() lvm.Reader { return reader{n} }

// Groups returns the node's groups as a reader of all disks sees them, without checksums, in the order of NewNode.
func (n *Node) Groups() []lvm.Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	groups := make([]lvm.Group, 0, len(n.groups))
	for _, g := range n.groups {
		groups = append(groups, g.content())
	}
	return groups
}

// Group returns the group of this name as a reader of all its disks sees it, without a checksum. It panics if there is none.
func (n *Node) Group(name string) lvm.Group {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.group(name).content()
}

// Admin runs an LVM command as an admin at the node's console. Without --devices it sees all disks. Commands does not return it. Its error
// is an *lvm.ExitError.
func (n *Node) Admin(argv ...string) error {
	if !slices.Contains(argv, "--devices") {
		argv = slices.Insert(slices.Clone(argv), 1, "--devices", strings.Join(n.disks(), ","))
	}
	if _, f := n.run(argv); f != nil {
		return f.exitError(argv)
	}
	return nil
}

func (n *Node) disks() (devices []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.groups {
		for _, pv := range g.PVs {
			devices = append(devices, pv.Device)
		}
	}
	return devices
}

// Before makes a function run before each later LVM command takes effect, unless a fault makes the command fail before that; nil: none. The
// function may use the node.
func (n *Node) Before(run func(argv []string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.before = run
}

// Commands returns the LVM commands that have run.
func (n *Node) Commands() []lvm.Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.commands)
}

// HoldWipes delays the end of every wipe until release is called.
func (n *Node) HoldWipes() (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(chan struct{})
	n.held = held
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		close(held)
		n.held = nil
	})
}

// Change changes a group without a command, as an admin or a failing disk would. A change that LVM would commit counts Seqno up.
func (n *Node) Change(name string, change func(*lvm.Group)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.group(name).Group)
}

// Ignore lets the node's record refuse physical volumes.
func (n *Node) Ignore(pvs ...lvm.UnacceptedPV) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ignored = pvs
}

// Unplug removes a group's disks, as if they had not appeared yet, until plug is called.
func (n *Node) Unplug(name string) (plug func()) {
	n.Change(name, func(*lvm.Group) { n.group(name).away = true })
	return func() { n.Change(name, func(*lvm.Group) { n.group(name).away = false }) }
}

// LoseDisk removes the i-th disk of a group, counted from 0, until putBack is called.
func (n *Node) LoseDisk(group string, i int) (putBack func()) {
	var device string
	n.Change(group, func(g *lvm.Group) {
		pv := &g.PVs[i]
		device, pv.Device, pv.Missing = pv.Device, "", true
	})
	return func() {
		n.Change(group, func(g *lvm.Group) { g.PVs[i].Device, g.PVs[i].Missing = device, false })
	}
}

// Rename renames a volume as lvrename does.
func (n *Node) Rename(group, from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	g.find(from).Name = to
	for i := range g.LVs {
		if g.LVs[i].Origin == from {
			g.LVs[i].Origin = to
		}
	}
	for _, d := range n.devices {
		if d.volume == from {
			d.volume = to
		}
	}
}

// Suspend suspends the device of a volume, as an LVM command does that is killed half-way.
func (n *Node) Suspend(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).suspended = true
}

// Resume resumes the device of a volume.
func (n *Node) Resume(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).suspended = false
}

// Freeze freezes the file system on a volume, as fsfreeze does: LVM cannot suspend its device, and so cannot create a snapshot
// of it.
func (n *Node) Freeze(path string, frozen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).frozen = frozen
}

// SetStatus sets the kernel's status of a device's first target, as DM_TABLE_STATUS returns it.
func (n *Node) SetStatus(path, target, parameters string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).status = target + " " + parameters
}

func (n *Node) group(name string) *group {
	for _, g := range n.groups {
		if string(g.Name) == name {
			return g
		}
	}
	return nil
}

func (n *Node) device(path string) *device {
	for _, d := range n.devices {
		if d.Path == path {
			return d
		}
	}
	return nil
}

// now is the creation time of everything on the node: no time passes.
func (n *Node) now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// uuid returns a UUID in LVM's notation, unique on the node.
func (n *Node) uuid() string {
	n.serial++
	s := fmt.Sprintf("%032d", n.serial)
	return strings.Join([]string{s[:6], s[6:10], s[10:14], s[14:18], s[18:22], s[22:26], s[26:]}, "-")
}
