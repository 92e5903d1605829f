package lvmtest

import (
	"context"
	"fmt"

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
	var s lvm.State
	for _, g := range n.groups {
		for _, pv := range g.PVs {
			if !g.away && pv.Device != "" {
				s.Devices = append(s.Devices, pv.Device)
				found := lvm.FoundPV{UUID: pv.UUID, Devices: pv.DuplicateDevices, BlockSize: pv.BlockSize, Unresponsive: pv.Unresponsive, MetadataUnreadable: pv.MetadataUnreadable}
				if len(found.Devices) == 0 {
					found.Devices = []string{pv.Device}
				}
				s.PVs = append(s.PVs, found)
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
