package host

import (
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
)

// The kinds of work that Host.openings keeps apart, by the volume's UUID: between the reading that finds a volume ready and the opening of its device, nothing
// on the node shows that it is about to be used.
const (
	opening = oplock.First
	holding = oplock.Second
)

// Binding keeps the devices of a group's volumes from being replaced until bound is called. The caller opens one and binds it at a pod's path in between.
// KindBusy: that is under way.
func (h *Host) Binding(id lvm.ID) (bound func(), err error) { return h.engine.Binding(id.VG) }

// Opening keeps each Hold of a volume from beginning until opened is called. The caller reads the volume's state and opens its device in between.
// KindBusy: a Hold is under way.
func (h *Host) Opening(id lvm.ID, uuid string) (opened func(), err error) {
	opened, ok := h.openings.Begin(uuid, opening)
	if !ok {
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s is about to be held for its move to another node; retry", id)
	}
	return opened, nil
}
