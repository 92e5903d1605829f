package lvmtest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// delta is the node's thin_delta: of two thin volumes the first chunk differs.
type delta struct{ node *Node }

func (d delta) Compare(_ context.Context, metadata string, one, two int, each func(from, length int64)) (lvm.Bytes, error) {
	d.node.mu.Lock()
	defer d.node.mu.Unlock()
	for _, g := range d.node.groups {
		for i := range g.LVs {
			pool := &g.LVs[i]
			if pool.Thin == nil {
				continue
			}
			uuid := DeviceUUID(string(g.UUID), g.find(pool.Thin.Metadata).UUID) + "-tmeta"
			if !slices.ContainsFunc(d.node.devices, func(at *device) bool { return at.UUID == uuid && at.Path == metadata }) {
				continue
			}
			k := d.node.kernelOf(pool)
			if !k.held || !k.devices[one] || !k.devices[two] {
				return 0, errors.New("the pool has no metadata snapshot with these devices")
			}
			each(0, 1)
			return pool.Thin.ChunkSize, nil
		}
	}
	return 0, errors.New(metadata + " is not the metadata of a pool")
}

// HoldMetadata has the kernel create a metadata snapshot of a pool, or release it, as another program does.
func (n *Node) HoldMetadata(pool string, hold bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.groups {
		if lv := g.find(strings.TrimPrefix(pool, string(g.Name)+"/")); lv != nil && lv.Thin != nil {
			n.kernelOf(lv).held = hold
		}
	}
}
