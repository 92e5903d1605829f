package lvmtest

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
)

// reader reads the node's state as ondisk.Disks would.
type reader struct{ node *Node }

func (r reader) Read(ctx context.Context) (lvm.State, error) {
	n := r.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return lvm.State{}, err
	}
	s := lvm.State{Unaccepted: n.ignored}
	for _, g := range n.groups {
		for _, pv := range g.PVs {
			if !g.away && pv.Device != "" {
				s.Devices = append(s.Devices, pv.Device)
			}
		}
	}
	for _, g := range n.groups {
		if !g.away {
			read := g.read()
			if read.Unreadable != "" {
				read.LVs, read.Closed, read.Problem = nil, true, read.Unreadable
			}
			s.Groups = append(s.Groups, read)
		}
	}
	return s, nil
}
