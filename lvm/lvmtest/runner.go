package lvmtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// Exit statuses of lvm(8).
const (
	exitUnknown   = 2
	exitArguments = 3
	exitFailed    = 5
)

// runner is the fake lvm command.
type runner struct {
	node    *Node
	observe func(lvm.Command)
}

// failure is an exit status with lvm's message.
type failure struct {
	code  int
	words string
}

func failed(format string, args ...any) *failure {
	return &failure{exitFailed, fmt.Sprintf(format, args...)}
}

func (f *failure) exitError(argv []string) error {
	return &lvm.ExitError{Argv: argv, Code: f.code, Stderr: f.words}
}

func (r runner) Run(ctx context.Context, argv []string) ([]byte, error) {
	report, f := r.node.run(argv)
	done := lvm.Command{Name: argv[0], Args: argv[1:]}
	if f != nil {
		done.ExitCode = f.code
	}
	r.node.mu.Lock()
	r.node.commands = append(r.node.commands, done)
	r.node.mu.Unlock()
	if r.observe != nil {
		r.observe(done)
	}
	if f != nil {
		return nil, f.exitError(argv)
	}
	return report, nil
}

// run runs one command, with the fault if this is its call.
func (n *Node) run(argv []string) ([]byte, *failure) {
	fault, before := n.begin()
	if fault != nil && !fault.Late && !fault.Half && !fault.MessagesCounted {
		return nil, fault.failure()
	}
	if before != nil {
		before(argv)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.halved, n.messagesCounted = fault != nil && fault.Half, fault != nil && fault.MessagesCounted
	defer func() { n.halved, n.messagesCounted = false, false }()
	report, f := n.dispatch(argv)
	if fault != nil && f == nil {
		return nil, fault.failure()
	}
	return report, f
}

// begin counts a command, and returns its fault, if any, and what runs before it takes effect.
func (n *Node) begin() (fault *Fault, before func(argv []string)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault != nil && n.fault.Call == n.calls {
		fault, n.fault = n.fault, nil
	}
	n.calls++
	return fault, n.before
}

func (n *Node) dispatch(argv []string) ([]byte, *failure) {
	if argv[0] == "fullreport" {
		return n.fullreport(), nil
	}
	if options[argv[0]] == nil {
		return nil, &failure{exitUnknown, "No such command '" + argv[0] + "'."}
	}
	l, err := parse(argv[0], argv[1:])
	if err != nil {
		return nil, &failure{exitArguments, err.Error()}
	}
	switch argv[0] {
	case "lvcreate":
		return nil, n.lvcreate(l)
	case "lvextend":
		return nil, n.lvextend(l)
	case "vgchange":
		return nil, n.vgchange(l)
	case "lvchange":
		return nil, n.onVolumes(l, n.lvchange)
	default:
		return nil, n.onVolumes(l, n.lvremove)
	}
}

// vgchange adds tags to a group.
func (n *Node) vgchange(l line) *failure {
	if len(l.positional) != 1 {
		return &failure{exitArguments, "vgchange: wrong arguments"}
	}
	g, f := n.visible(l.positional[0], l)
	if f != nil {
		return f
	}
	g.Tags = append(slices.Clone(g.Tags), l.add...)
	g.commit()
	return nil
}

// visible finds a group on the disks of the command's --devices.
func (n *Node) visible(name string, l line) (*group, *failure) {
	g := n.group(name)
	if g == nil {
		return nil, failed("Volume group %q not found", name)
	}
	if len(g.unseen(l)) > 0 {
		return nil, failed("Cannot process volume group %s with missing PVs.", name)
	}
	if g.Problem != "" {
		return nil, failed("Volume group %s cannot be changed: %s", name, g.Problem)
	}
	return g, nil
}
