package engine

import (
	"bytes"
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// ReadState reads the node's volume groups and adds what WithKnowledge knows.
func (e *Engine) ReadState(ctx context.Context) (lvm.State, error) {
	s, err := e.ReadDisks(ctx)
	if err != nil {
		return lvm.State{}, err
	}
	return e.WithKnowledge(s), nil
}

// WithKnowledge adds to a state what the disks do not hold: the volumes that requests got before their ready tag, the blocked
// groups and the overcommitted pools. It also adds the free extents that are known to be zero, and the targets that the kernel lacks.
func (e *Engine) WithKnowledge(s lvm.State) lvm.State {
	s = e.Untagged.withReady(s)
	s.MissingTargets = e.missingTargets()
	s.Groups = slices.Clone(s.Groups) // other reads share them
	for i, g := range s.Groups {
		s.Groups[i] = e.withOvercommit(g)
		e.Zeroed.Show(&s.Groups[i])
		if _, hung := e.Locks.BlockedFor(g.UUID); hung != nil {
			s.Groups[i].Problem = hung.Error()
		}
	}
	return s
}

// ReadDisks reads the disks. It notes new groups in Arrivals, and starts nothing for them.
func (e *Engine) ReadDisks(ctx context.Context) (lvm.State, error) {
	ticket := e.Zeroed.Reading()
	s, err := e.Disks.Read(ctx)
	if err != nil {
		return lvm.State{}, lvm.Errorf(lvm.KindInternal, "cannot read the volume groups of this node: %w", err)
	}
	e.Zeroed.Read(ticket, s)
	e.Arrivals.note(s)
	e.pvs.note(s)
	return e.withNodeProblems(s), nil
}

// report runs LVM's report on these devices, to compare it with a reading.
func (e *Engine) report(ctx context.Context, devices []string) (lvm.State, error) {
	if len(devices) == 0 {
		return lvm.State{}, nil
	}
	report, err := e.runLVM(ctx, lvmcmd.ReportArgs(devices))
	if err != nil {
		return lvm.State{}, err
	}
	return ondisk.ParseReport(bytes.NewReader(report))
}
