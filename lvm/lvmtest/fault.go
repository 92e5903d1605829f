package lvmtest

import (
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

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

func (f *Fault) failure() *failure {
	if f.Killed || f.Half || f.MessagesCounted {
		return &failure{-1, "signal: killed"}
	}
	return failed("a fault of the test")
}

// LeaveMessage adds a message for a group's default thin pool, "create VOLUME" or "delete NUMBER", that the pool has counted, as a command
// does that is interrupted before LVM drops its messages. No volume of the group is active afterwards.
func (n *Node) LeaveMessage(group, message string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	for _, lv := range g.LVs {
		if f := n.deactivate(g, lv.Name); f != nil {
			return errors.New(f.words)
		}
	}
	pool := g.find(lvm.DefaultPool)
	pool.Thin.Messages = append(pool.Thin.Messages, message)
	return nil
}

// LeaveUncounted leaves a thin volume or snapshot as a driver and its lvm do that are killed before the pool counts its messages; if
// created, after the pool has created the device.
func (n *Node) LeaveUncounted(group, name string, created bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	lv := g.find(name)
	lv.Tags[slices.Index(lv.Tags, "nodelvm.state=ready")] = "nodelvm.state=creating"
	n.lower(g, name, "")
	pool := g.find(lv.Pool)
	n.queue(pool, "create "+name)
	if !created {
		delete(n.kernelOf(pool).devices, n.number(g, lv))
	}
}

// LeaveSpare makes a volume one that an lvm left which was killed while it created its spare for pool metadata.
func (n *Node) LeaveSpare(group, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spares[n.group(group).find(name).UUID] = true
}

// LostDevices lists the devices that only a group's default thin pool has, and those that only LVM has.
func (n *Node) LostDevices(group string) []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost(n.group(group), lvm.DefaultPool)
}
