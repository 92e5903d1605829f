package wipe

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// wiping is a deleted volume that still holds its extents.
type wiping struct {
	volume lvm.Volume
	left   lvm.Bytes     // not zeroed yet
	done   chan struct{} // closed when the volume is removed, or the driver stops
}

// left records how much of a volume is not zero yet.
func (w *Wiper) left(v lvm.Volume, at lvm.Bytes) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pending[v.UUID]; p != nil {
		p.left = max(v.DeviceSize()-at, 0)
	}
}

func (w *Wiper) LeftOf(uuid string) lvm.Bytes {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pending[uuid]; p != nil {
		return p.left
	}
	return 0
}

// Done is closed when the volume is no longer pending.
func (w *Wiper) Done(uuid string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pending[uuid]; p != nil {
		return p.done
	}
	ended := make(chan struct{})
	close(ended)
	return ended
}

// Backlog sums up what is not wiped yet.
func (w *Wiper) Backlog() (sum lvm.Bytes) {
	for _, b := range w.Backlogs() {
		sum += b.Bytes
	}
	return sum
}

// Backlogs is the same by group and namespace. A quota does not count deleted volumes; this shows whose they are.
func (w *Wiper) Backlogs() []report.Backlog {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []report.Backlog{}
	for _, p := range w.pending {
		v := p.volume
		namespace, _, _ := strings.Cut(v.Claim, "/")
		i := slices.IndexFunc(list, func(b report.Backlog) bool { return b.UUID == v.ID.VG && b.Namespace == namespace })
		if i < 0 {
			i = len(list)
			list = append(list, report.Backlog{Group: v.Group, UUID: v.ID.VG, Namespace: namespace})
		}
		list[i].Volumes++
		list[i].Bytes += p.left
		list[i].Held += v.DeviceSize()
	}
	slices.SortFunc(list, func(a, b report.Backlog) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.UUID, b.UUID), strings.Compare(a.Namespace, b.Namespace))
	})
	return list
}
