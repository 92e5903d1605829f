// Package lvmtest replaces the LVM command, the disks and the kernel below a host.Host. Tests of whole services then need
// neither root nor a disk. NewHost returns a Host that works; Node is a node whose LVM can be made to fail.
//
// The fake keeps the node's volume groups in memory. It accepts the argument vectors that the Host passes to lvm, refuses any
// other, allocates exactly the named extents, and prints reports in LVM's format. It does not model the content of volumes,
// other programs' use of the managed volumes, or time. The suite Conformance compares it with the real LVM: it runs on both.
//
//	node, model            the groups, and the extents of each leg of a volume
//	runner, line           a command line, parsed as strictly as by lvm
//	lvcreate, thin,        what each command does; messages is what LVM sends a thin pool
//	lvchange, messages
//	active, kernel         device-mapper's devices
//	report                 LVM's report
//	fixture, conformance...    the suite
//	real_...               the suite on the real LVM, and what only that can show: content, crashes, power cuts
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
	// Before, if set, runs before each LVM command takes effect, with the node locked.
	Before func(argv []string)

	mu              sync.Mutex
	groups          []*group
	devices         []*device
	serial          int // the last UUID and device number
	calls           int
	commands        []lvm.Command
	fault           *Fault
	indirect        bool
	filled          map[string]lvm.Bytes // by the UUID of a thin volume: the bytes written to it
	halved          bool                 // kill the running command half-way.
	messagesCounted bool                 // kill the running command once a pool has counted its messages.
	pools           map[string]*poolKernel
	numbers         map[string]int  // by the UUID of a thin volume: its number in the pool
	spares          map[string]bool // by the UUID of a volume: an unfinished spare for pool metadata.
	names           map[string]bool // in /dev/mapper, created by an admin's lvm
	held            chan struct{}   // closed when wipes may continue; nil if none is held
}

// NewNode returns a node with these groups.
func NewNode(groups ...Group) *Node {
	n := &Node{filled: map[string]lvm.Bytes{}, pools: map[string]*poolKernel{}, numbers: map[string]int{}, spares: map[string]bool{}, names: map[string]bool{}}
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
	host := n.host(cfg)
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

func (n *Node) host(cfg lvm.Config) *host.Host {
	cfg.CacheTTL = cmp.Or(cfg.CacheTTL, -1) // an admin's change shows at once
	return n.hostOn(cfg, lvm.Machine{})
}

// hostOn returns a Host, not started, on a machine; the node provides what the machine lacks.
func (n *Node) hostOn(cfg lvm.Config, m lvm.Machine) *host.Host {
	if m.Runner == nil {
		m.Runner = runner{n, cfg.Observe}
	}
	if m.Kernel == nil {
		m.Kernel = kernel{n}
	}
	if m.Reader == nil {
		m.Reader = reader{n}
	}
	return host.NewHostOn(cfg, m)
}

// Commands returns the LVM commands that have run.
func (n *Node) Commands() []lvm.Command {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.commands)
}

// Indirect makes the disks readable only to LVM, so that each read is a command.
func (n *Node) Indirect() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.indirect = true
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

// Change changes a group without a command, as an admin or a failing disk would.
func (n *Node) Change(name string, change func(*lvm.Group)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.group(name).Group)
}

// Unplug removes a group's disks, as if they had not appeared yet, until plug is called.
func (n *Node) Unplug(name string) (plug func()) {
	n.Change(name, func(*lvm.Group) { n.group(name).away = true })
	return func() { n.Change(name, func(*lvm.Group) { n.group(name).away = false }) }
}

// Suspend suspends the device of a volume, as an LVM command does that is killed half-way.
func (n *Node) Suspend(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.device(path).suspended = true
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

// Fault makes one LVM command fail.
type Fault struct {
	Call            int  // which one, counted from 0 since Fail
	Late            bool // it fails after it took effect, instead of before
	Killed          bool // it ends by a signal, instead of with exit status 5
	Half            bool // it is killed between its commit and its end. A new device is missing then, a changed one stays suspended.
	MessagesCounted bool // it is killed after a thin pool counted its messages, before LVM drops them. Without messages, at its end
}

// Fail sets the fault; Tripped reports whether it has happened.
func (n *Node) Fail(f Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault, n.calls = &f, 0
}

// Tripped reports whether the command of the fault has run.
func (n *Node) Tripped() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.fault == nil
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

// reader reads the node's state as ondisk.Disks would.
type reader struct{ node *Node }

func (r reader) Read(ctx context.Context) (lvm.State, error) {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return lvm.State{}, err
	}
	var s lvm.State
	for _, g := range n.groups {
		for _, pv := range g.PVs {
			if !g.away && pv.Device != "" {
				s.Devices = append(s.Devices, pv.Device)
			}
		}
	}
	if n.indirect {
		return s, fmt.Errorf("only LVM can read these disks")
	}
	for _, g := range n.groups {
		if !g.away {
			s.Groups = append(s.Groups, g.read())
		}
	}
	return s, nil
}
