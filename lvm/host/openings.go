package host

import (
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// openings keeps apart the Hold of a volume and the openings of its device: between the reading that finds the volume ready and the opening, nothing on the
// node shows that it is about to be used.
type openings struct {
	mu       sync.Mutex
	underWay map[string]int // by the volume's UUID: openings, each +1, or a Hold, -1
}

// begin reports whether none of the other kind is under way. Then none begins until end is called.
func (o *openings) begin(uuid string, one int) (end func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.underWay[uuid]*one < 0 {
		return func() {}, false
	}
	if o.underWay == nil {
		o.underWay = map[string]int{}
	}
	o.underWay[uuid] += one
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.underWay[uuid] -= one; o.underWay[uuid] == 0 {
			delete(o.underWay, uuid)
		}
	}, true
}

// Binding keeps the volumes' devices of a group from being replaced until bound is called. The caller opens one and binds it at a pod's path in between.
func (h *Host) Binding(id lvm.ID) (bound func()) { return h.engine.Binding(id.VG) }

// Opening keeps each Hold of a volume from beginning until opened is called. The caller reads the volume's state and opens its device in between.
// KindBusy: a Hold is under way.
func (h *Host) Opening(id lvm.ID, uuid string) (opened func(), err error) {
	opened, ok := h.openings.begin(uuid, +1)
	if !ok {
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s is about to be held for its move to another node; retry", id)
	}
	return opened, nil
}
