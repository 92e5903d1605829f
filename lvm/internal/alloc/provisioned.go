package alloc

import (
	"github.com/nodelvm/nodelvm/lvm"
)

// The provisioned size of a pool is what its volumes and snapshots would hold if all of their blocks differed. A volume or snapshot counts
// with its full size. A read-only copy of a snapshot shares the snapshot's blocks, which never change, but for those that the replay of its
// journal wrote:
//
//	snapshot S, and n read-only copies of it   S + n * lvm.ReplaySize(S)
//	the copies without their snapshot          the same: the blocks stay as long as one copy needs them
//
// So the deletion of a snapshot never raises the provisioned size. A read-only copy of a volume counts in full, because that volume changes, and
// so does one whose replay was interrupted, or wrote more than lvm.ReplaySize. While a replay runs, its copy does not count more: a backup
// makes copies of many volumes at a time, and each pool would grow for that moment by what it never needs, or refuse the next copy.

// provisioned counts the chunks that the pool has provisioned.
func (p Pool) provisioned() (n lvm.Extents) {
	var copies []lvm.LV // read-only ones of snapshots
	snapshots := map[string]bool{}
	for _, lv := range p.Group.LVs {
		if lv.Type != string(lvm.LayoutThin) || lv.Pool != p.Name {
			continue
		}
		if v, _ := lv.AsVolume(); countsReplay(v.Access) && v.Source.IsSnapshot() {
			copies = append(copies, lv)
			continue
		}
		n += p.Chunks(lv.Extents)
		if _, is := lv.AsSnapshot(); is {
			snapshots[lv.Name] = true
		}
	}
	deleted := map[string]lvm.Extents{} // chunks of deleted snapshots, whose blocks the copies still have, by name
	for _, lv := range copies {
		n += p.Chunks(replayExtents(p.Group, lv.Extents))
		if v, _ := lv.AsVolume(); !snapshots[lv.Origin] { // LVM forgets the origin when it removes that
			deleted[v.Source.LV] = max(deleted[v.Source.LV], p.Chunks(lv.Extents))
		}
	}
	for _, chunks := range deleted {
		n += chunks
	}
	return n
}

// countsReplay reports whether a copy of a snapshot with that access counts what the replay of its journal usually writes.
func countsReplay(a lvm.Access) bool {
	return a == lvm.AccessReplay || a == lvm.AccessReplaying || a == lvm.AccessReadOnly
}

// replayExtents counts the extents that a read-only copy of a snapshot provisions.
func replayExtents(g lvm.Group, extents lvm.Extents) lvm.Extents {
	return g.ExtentsFor(lvm.ReplaySize(g.Bytes(extents)))
}

// AccessAfterReplay returns the access of a read-only copy whose device got so many writes of so many bytes: each write may begin and end in the
// middle of a chunk.
func AccessAfterReplay(g lvm.Group, lv lvm.LV, writes int64, size lvm.Bytes) lvm.Access {
	chunk := PoolChunk
	if pool := g.FindLV(lv.Pool); pool != nil && pool.Thin != nil {
		chunk = pool.Thin.ChunkSize
	}
	if most := lvm.ReplaySize(g.Bytes(lv.Extents)); size > most || lvm.Bytes(writes) > (most-size)/(2*chunk) {
		return lvm.AccessReadOnlyFull
	}
	return lvm.AccessReadOnly
}

// copyExtents counts the extents that a new read-only copy provisions.
func copyExtents(g lvm.Group, spec lvm.Spec, extents lvm.Extents) lvm.Extents {
	if spec.Source.IsSnapshot() {
		return replayExtents(g, extents)
	}
	return extents
}

// Provisioned returns the provisioned size of a thin pool of the group.
func Provisioned(g lvm.Group, pool lvm.LV) lvm.Bytes {
	p := Pool{Group: g, Name: pool.Name, Chunk: pool.Thin.ChunkSize}
	return lvm.Bytes(p.provisioned()) * p.Chunk
}
