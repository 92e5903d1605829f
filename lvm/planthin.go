package lvm

import (
	"slices"
	"strings"
)

// A thin pool (lvmthin(7)) is made when the first volume of a class asks for it, and grows with what is promised: its
// data times the class's overprovision is at least what all its volumes and snapshots would hold if they were full. A
// pool that an admin made is used as it is, and never grown.
//
//	pool        what there is, or what would be made
//	promisable  how much more may be promised: the largest thin volume
//	growth      what is to be done to the pool before a promise
//
// Sizes are reckoned in chunks, the pool's unit: a volume takes whole ones, and a rest of the pool's data below one is
// of no use.

// Sizes of the pools that are made here.
const (
	poolChunk     = 64 * KiB // doubled for groups that it would need too much metadata for
	poolPerChunk  = 64       // bytes of metadata for one mapping (lvmthin(7), "Size of pool metadata LV")
	poolSnapshots = 4        // mappings of each chunk that there is room for: as many volumes and snapshots that differ

	poolMetadataBlock = 4 * KiB          // in which the kernel counts it
	poolMetadataMax   = 15*GiB + 768*MiB // below the limit of dm-thin, which is about 15.8 GiB
	poolStep          = 1 * GiB          // a pool grows by no less, if there is as much
	spareSuffix       = "_pmspare"
)

// pool is a thin pool as it stands, or as it would be made (made is false).
type pool struct {
	group    Group
	name     string
	made     bool
	ours     bool    // it grows with what is promised
	data     Extents // that hold the volumes' blocks
	chunk    Bytes
	promised Extents // chunks: what the volumes and snapshots in it would take
	metadata Extents
	spare    Extents // what LVM's spare takes when the pool is made
	debris   *LV     // what an lvcreate that was cut off left under the pool's name
	spares   []LV    // what may be left of one that was cut off before: LVM can tell (sparesArgs)
}

// poolGrowth is what is done to a pool before it promises more. nil: nothing.
type poolGrowth struct {
	name     string
	cluster  string
	group    Group
	data     Extents   // that it has afterwards
	ranges   []peRange // where it grows: lvextend; nil if it does not
	debris   *LV       // removed before it is made
	spares   []LV      // those of them that are LVM's are removed as well
	home     []peRange // where it is made, in one run with its metadata and LVM's spare: lvcreate; nil if it is there
	first    Extents   // the data that it is made with
	metadata Extents
	chunk    Bytes
}

// poolOf finds the pool of a class in the group, or what it would be. KindInsufficientCapacity: no thin volume can be made in it.
func poolOf(g Group, class Class) (pool, error) {
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == class.Pool })
	if i < 0 {
		return newPool(g, class)
	}
	lv := g.LVs[i]
	switch {
	case lv.Thin == nil && isPool(lv) && len(lv.UsedBy) == 0:
		// LVM first commits an LV of the pool's name and tags with the metadata's extents, to blank them.
		p, err := newPool(g, class)
		p.debris = &lv
		return p, err
	case lv.Thin == nil:
		return pool{}, Errorf(KindInsufficientCapacity, "%s/%s is not a thin pool: name another one in the class (thinPool), or rename it", g.Name, lv.Name)
	case !lv.Thin.Zero:
		return pool{}, Errorf(KindInsufficientCapacity, "the thin pool %s/%s shows old data in new blocks: let it zero them first (lvchange -Zy %s/%s)", g.Name, lv.Name, g.Name, lv.Name)
	}
	if lv.Thin.Crowded != "" {
		return pool{}, Errorf(KindInsufficientCapacity, "%s", lv.Thin.Crowded)
	}
	p := pool{group: g, name: lv.Name, made: true, ours: isPool(lv), data: lv.Extents, chunk: lv.Thin.ChunkSize}
	for _, other := range g.LVs {
		if other.Type == string(LayoutThin) && other.Pool == lv.Name {
			p.promised += p.chunks(other.Extents)
		}
		if other.Name == lv.Thin.Metadata {
			p.metadata = other.Extents
		}
	}
	return p, nil
}

// newPool is the pool that would be made: with metadata for the whole group, as it may grow to it.
func newPool(g Group, class Class) (pool, error) {
	var whole Extents
	for _, pv := range g.PVs {
		whole += pv.Extents
	}
	p := pool{group: g, name: class.Pool, ours: true, chunk: poolChunk}
	if spareOf(g) == 0 { // where LVM has a spare it makes no other: a volume that bears its note is something else
		p.spares = nameless(g)
	}
	need := func() Bytes { return g.bytes(whole) / p.chunk * poolPerChunk * poolSnapshots }
	for need() > poolMetadataMax {
		p.chunk *= 2
	}
	p.metadata = g.round(max(need(), poolMetadataMin))
	if spare := spareOf(g); spare < p.metadata {
		p.spare = p.metadata - spare
	}
	if !slices.ContainsFunc(g.PVs, func(pv PV) bool { return pv.longest() > p.fixed() }) {
		return pool{}, Errorf(KindInsufficientCapacity, "volume group %s has no room for the thin pool %s: it needs a run of %s on one disk for metadata, spare and a little data", g.Name, p.name, g.bytes(p.fixed()+1))
	}
	return p, nil
}

// nameless lists the volumes that bear no tag and a name of LVM's choice: most of them are an admin's.
func nameless(g Group) (list []LV) {
	for _, lv := range g.LVs {
		number, is := strings.CutPrefix(lv.Name, "lvol")
		if is && number != "" && strings.Trim(number, "0123456789") == "" && !lv.Hidden && len(lv.Tags) == 0 && len(lv.UsedBy) == 0 && lv.Type == string(LayoutLinear) {
			list = append(list, lv)
		}
	}
	return list
}

// fixed is what making the pool takes beside its data.
func (p pool) fixed() Extents { return p.metadata + p.spare }

// spareOf is the size of the LV that LVM keeps for the repair of pool metadata, as large as the largest of the group.
func spareOf(g Group) (n Extents) {
	for _, lv := range g.LVs {
		if lv.Hidden && strings.HasSuffix(lv.Name, spareSuffix) {
			n = max(n, lv.Extents)
		}
	}
	return n
}

// chunks counts the chunks that a volume of n extents takes when it is full.
func (p pool) chunks(n Extents) Extents {
	return Extents((p.group.bytes(n) + p.chunk - 1) / p.chunk)
}

// room is how many extents the pool's data can still grow by, at most as far as its metadata can describe.
func (p pool) room() Extents {
	switch {
	case !p.ours:
		return 0
	case !p.made:
		return p.group.free() - p.fixed()
	}
	described := p.group.bytes(p.metadata) / poolPerChunk * p.chunk / p.group.ExtentSize
	return max(0, min(p.group.free(), Extents(described)-p.data))
}

// maxVolume bounds a volume, so that its bytes, and percents of its chunks, do not overflow.
func maxVolume(g Group) Extents { return min(maxExtents, Extents((1<<62)/g.ExtentSize)) }

// promise is what the pool may promise in all if its data has n extents, in chunks.
func (p pool) promise(n Extents, percent int) Extents {
	return min(Extents((1<<62)/p.chunk), Extents(p.group.bytes(n)/p.chunk)*Extents(percent)/100)
}

// dataFor is how many extents of data allow a promise of n chunks.
func (p pool) dataFor(n Extents, percent int) Extents {
	chunks := (n*100 + Extents(percent) - 1) / Extents(percent)
	return p.group.round(max(1, Bytes(chunks)*p.chunk))
}

// promisable is the largest thin volume of the class that can be made in the group.
func promisable(g Group, class Class) Extents {
	p, err := poolOf(g, class)
	if err != nil {
		return 0
	}
	left := p.promise(p.data+p.room(), class.Overprovision) - p.promised
	return max(0, min(maxVolume(g), Extents(Bytes(left)*p.chunk/g.ExtentSize)))
}

// growth decides what is to be done to the pool before it promises n extents more, and by how many chunks more, if that
// is to replace a promise of old extents. KindInsufficientCapacity: it cannot promise as much.
func (p pool) growth(n, old Extents, class Class, cluster string) (*poolGrowth, error) {
	promised := p.promised + p.chunks(n) - p.chunks(old)
	room := p.room()
	if promised > p.promise(p.data+room, class.Overprovision) {
		return nil, p.refusal(class, old)
	}
	need := p.dataFor(promised, class.Overprovision)
	if p.made && need <= p.data {
		return nil, nil
	}
	grown := min(p.data+room, max(need, p.data+p.group.round(poolStep)))
	return p.to(grown, cluster), nil
}

// to is what brings the pool to so many extents of data, for which there is room.
func (p pool) to(grown Extents, cluster string) *poolGrowth {
	growth := &poolGrowth{name: p.name, cluster: cluster, group: p.group, data: grown, metadata: p.metadata, chunk: p.chunk}
	rest := p.group
	if !p.made {
		free := holes(rest)
		home := free[smallest(free, grown+p.fixed())]
		growth.debris, growth.spares = p.debris, p.spares
		growth.first = min(grown, home.Count-p.fixed())
		growth.home = []peRange{home.head(growth.first + p.fixed())}
		rest = rest.clone()
		useRanges(&rest, growth.home)
	}
	growth.ranges = linearRanges(rest, grown-p.data-growth.first)
	return growth
}

// refusal says what is left of the pool.
func (p pool) refusal(class Class, old Extents) error {
	left := p.group.bytes(promisable(p.group, class) + old)
	switch {
	case !p.ours && old > 0:
		return Errorf(KindInsufficientCapacity, "the thin pool %s/%s can give at most %s to this volume, at %d %% of its %s: extend it (lvextend %s/%s), or remove volumes or snapshots", p.group.Name, p.name, left, class.Overprovision, p.group.bytes(p.data), p.group.Name, p.name)
	case !p.ours:
		return Errorf(KindInsufficientCapacity, "the thin pool %s/%s can promise at most %s more at %d %% of its %s: extend it (lvextend %s/%s), or remove volumes or snapshots", p.group.Name, p.name, left, class.Overprovision, p.group.bytes(p.data), p.group.Name, p.name)
	case old > 0:
		return Errorf(KindInsufficientCapacity, "the thin pool %s/%s can give at most %s to this volume, at %d %% of its data and of what is free in the volume group", p.group.Name, p.name, left, class.Overprovision)
	default:
		return Errorf(KindInsufficientCapacity, "volume group %s can give at most %s in one volume of the thin pool %s, at %d %% of its data and of what is free", p.group.Name, left, p.name, class.Overprovision)
	}
}
