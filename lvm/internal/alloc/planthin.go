package alloc

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
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
	PoolChunk     = 64 * lvm.KiB // doubled for groups that it would need too much metadata for
	poolPerChunk  = 64           // bytes of metadata for one mapping (lvmthin(7), "Size of pool metadata LV")
	poolSnapshots = 4            // mappings of each chunk that there is room for: as many volumes and snapshots that differ

	PoolMetadataBlock = 4 * lvm.KiB              // in which the kernel counts it
	PoolMetadataMax   = 15*lvm.GiB + 768*lvm.MiB // below the limit of dm-thin, which is about 15.8 GiB
	poolStep          = 1 * lvm.GiB              // a pool grows by no less, if there is as much
	SpareSuffix       = "_pmspare"
)

// Pool is a thin pool as it stands, or as it would be made (made is false).
type Pool struct {
	Group    lvm.Group
	Name     string
	Made     bool
	Ours     bool        // it grows with what is promised
	Data     lvm.Extents // that hold the volumes' blocks
	Chunk    lvm.Bytes
	Promised lvm.Extents // chunks: what the volumes and snapshots in it would take
	Metadata lvm.Extents
	spare    lvm.Extents // what LVM's spare takes when the pool is made
	debris   *lvm.LV     // what an lvcreate that was cut off left under the pool's name
	spares   []lvm.LV    // what may be left of one that was cut off before: LVM can tell (sparesArgs)
}

// PoolGrowth is what is done to a pool before it promises more. nil: nothing.
type PoolGrowth struct {
	Name     string
	Cluster  string
	Group    lvm.Group
	Data     lvm.Extents   // that it has afterwards
	Ranges   []ExtentRange // where it grows: lvextend; nil if it does not
	Debris   *lvm.LV       // removed before it is made
	Spares   []lvm.LV      // those of them that are LVM's are removed as well
	Home     []ExtentRange // where it is made, in one run with its metadata and LVM's spare: lvcreate; nil if it is there
	First    lvm.Extents   // the data that it is made with
	Metadata lvm.Extents
	Chunk    lvm.Bytes
}

// PoolOf finds the pool of a class in the group, or what it would be. KindInsufficientCapacity: no thin volume can be made in it.
func PoolOf(g lvm.Group, class lvm.Class) (Pool, error) {
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == class.Pool })
	if i < 0 {
		return newPool(g, class)
	}
	lv := g.LVs[i]
	switch {
	case lv.Thin == nil && lvm.IsPool(lv) && len(lv.UsedBy) == 0:
		// LVM first commits an LV of the pool's name and tags with the metadata's extents, to blank them.
		p, err := newPool(g, class)
		p.debris = &lv
		return p, err
	case lv.Thin == nil:
		return Pool{}, lvm.Errorf(lvm.KindInsufficientCapacity, "%s/%s is not a thin pool: set another name in the class (thinPool), or rename it", g.Name, lv.Name)
	case !lv.Thin.Zero:
		return Pool{}, lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s does not zero new blocks, so that volumes could show old data: enable zeroing (lvchange -Zy %s/%s)", g.Name, lv.Name, g.Name, lv.Name)
	}
	if lv.Thin.OvercommitReason != "" {
		return Pool{}, lvm.Errorf(lvm.KindInsufficientCapacity, "%s", lv.Thin.OvercommitReason)
	}
	p := Pool{Group: g, Name: lv.Name, Made: true, Ours: lvm.IsPool(lv), Data: lv.Extents, Chunk: lv.Thin.ChunkSize}
	for _, other := range g.LVs {
		if other.Type == string(lvm.LayoutThin) && other.Pool == lv.Name {
			p.Promised += p.Chunks(other.Extents)
		}
		if other.Name == lv.Thin.Metadata {
			p.Metadata = other.Extents
		}
	}
	return p, nil
}

// newPool is the pool that would be made: with metadata for the whole group, as it may grow to it.
func newPool(g lvm.Group, class lvm.Class) (Pool, error) {
	var whole lvm.Extents
	for _, pv := range g.PVs {
		whole += pv.Extents
	}
	p := Pool{Group: g, Name: class.Pool, Ours: true, Chunk: PoolChunk}
	if spareOf(g) == 0 { // where LVM has a spare it makes no other: a volume that bears its note is something else
		p.spares = nameless(g)
	}
	need := func() lvm.Bytes { return g.Bytes(whole) / p.Chunk * poolPerChunk * poolSnapshots }
	for need() > PoolMetadataMax {
		p.Chunk *= 2
	}
	p.Metadata = g.ExtentsFor(max(need(), lvm.PoolMetadataMin))
	if spare := spareOf(g); spare < p.Metadata {
		p.spare = p.Metadata - spare
	}
	if !slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.LongestRun() > p.Fixed() }) {
		return Pool{}, lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has insufficient capacity for the thin pool %s: it needs %s of contiguous free extents on one disk for metadata, spare metadata and data", g.Name, p.Name, g.Bytes(p.Fixed()+1))
	}
	return p, nil
}

// nameless lists the volumes that bear no tag and a name of LVM's choice: most of them are an admin's.
func nameless(g lvm.Group) (list []lvm.LV) {
	for _, lv := range g.LVs {
		number, is := strings.CutPrefix(lv.Name, "lvol")
		if is && number != "" && strings.Trim(number, "0123456789") == "" && !lv.Hidden && len(lv.Tags) == 0 && len(lv.UsedBy) == 0 && lv.Type == string(lvm.LayoutLinear) {
			list = append(list, lv)
		}
	}
	return list
}

// Fixed is what making the pool takes beside its data.
func (p Pool) Fixed() lvm.Extents { return p.Metadata + p.spare }

// spareOf is the size of the LV that LVM keeps for the repair of pool metadata, as large as the largest of the group.
func spareOf(g lvm.Group) (n lvm.Extents) {
	for _, lv := range g.LVs {
		if lv.Hidden && strings.HasSuffix(lv.Name, SpareSuffix) {
			n = max(n, lv.Extents)
		}
	}
	return n
}

// Chunks counts the chunks that a volume of n extents takes when it is full.
func (p Pool) Chunks(n lvm.Extents) lvm.Extents {
	return lvm.Extents((p.Group.Bytes(n) + p.Chunk - 1) / p.Chunk)
}

// Growable is how many extents the pool's data can still grow by, at most as far as its metadata can describe.
func (p Pool) Growable() lvm.Extents {
	switch {
	case !p.Ours:
		return 0
	case !p.Made:
		return p.Group.FreeExtents() - p.Fixed()
	}
	described := p.Group.Bytes(p.Metadata) / poolPerChunk * p.Chunk / p.Group.ExtentSize
	return max(0, min(p.Group.FreeExtents(), lvm.Extents(described)-p.Data))
}

// maxVolume bounds a volume, so that its bytes, and percents of its chunks, do not overflow.
func maxVolume(g lvm.Group) lvm.Extents { return min(maxExtents, lvm.Extents((1<<62)/g.ExtentSize)) }

// Promise is what the pool may promise in all if its data has n extents, in chunks.
func (p Pool) Promise(n lvm.Extents, percent int) lvm.Extents {
	return min(lvm.Extents((1<<62)/p.Chunk), lvm.Extents(p.Group.Bytes(n)/p.Chunk)*lvm.Extents(percent)/100)
}

// dataFor is how many extents of data allow a promise of n chunks.
func (p Pool) dataFor(n lvm.Extents, percent int) lvm.Extents {
	chunks := (n*100 + lvm.Extents(percent) - 1) / lvm.Extents(percent)
	return p.Group.ExtentsFor(max(1, lvm.Bytes(chunks)*p.Chunk))
}

// promisable is the largest thin volume of the class that can be made in the group.
func promisable(g lvm.Group, class lvm.Class) lvm.Extents {
	p, err := PoolOf(g, class)
	if err != nil {
		return 0
	}
	left := p.Promise(p.Data+p.Growable(), class.Overprovision) - p.Promised
	return max(0, min(maxVolume(g), lvm.Extents(lvm.Bytes(left)*p.Chunk/g.ExtentSize)))
}

// Growth decides what is to be done to the pool before it promises n extents more, and by how many chunks more, if that
// is to replace a promise of old extents. KindInsufficientCapacity: it cannot promise as much.
func (p Pool) Growth(n, old lvm.Extents, class lvm.Class, cluster string) (*PoolGrowth, error) {
	promised := p.Promised + p.Chunks(n) - p.Chunks(old)
	room := p.Growable()
	if promised > p.Promise(p.Data+room, class.Overprovision) {
		return nil, p.refusal(class, old)
	}
	need := p.dataFor(promised, class.Overprovision)
	if p.Made && need <= p.Data {
		return nil, nil
	}
	grown := min(p.Data+room, max(need, p.Data+p.Group.ExtentsFor(poolStep)))
	return p.To(grown, cluster), nil
}

// To is what brings the pool to so many extents of data, for which there is room.
func (p Pool) To(grown lvm.Extents, cluster string) *PoolGrowth {
	growth := &PoolGrowth{Name: p.Name, Cluster: cluster, Group: p.Group, Data: grown, Metadata: p.Metadata, Chunk: p.Chunk}
	rest := p.Group
	if !p.Made {
		free := FreeExtents(rest)
		home := free[smallest(free, grown+p.Fixed())]
		growth.Debris, growth.Spares = p.debris, p.spares
		growth.First = min(grown, home.Count-p.Fixed())
		growth.Home = []ExtentRange{home.Head(growth.First + p.Fixed())}
		rest = rest.Clone()
		UseRanges(&rest, growth.Home)
	}
	growth.Ranges = LinearRanges(rest, grown-p.Data-growth.First)
	return growth
}

// refusal says what is left of the pool.
func (p Pool) refusal(class lvm.Class, old lvm.Extents) error {
	left := p.Group.Bytes(promisable(p.Group, class) + old)
	switch {
	case !p.Ours && old > 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s for this volume, at %d %% of its %s: extend it (lvextend %s/%s), or delete volumes or snapshots", p.Group.Name, p.Name, left, class.Overprovision, p.Group.Bytes(p.Data), p.Group.Name, p.Name)
	case !p.Ours:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s more, at %d %% of its %s: extend it (lvextend %s/%s), or delete volumes or snapshots", p.Group.Name, p.Name, left, class.Overprovision, p.Group.Bytes(p.Data), p.Group.Name, p.Name)
	case old > 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s for this volume, at %d %% of its data and of the free space in the volume group", p.Group.Name, p.Name, left, class.Overprovision)
	default:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for a volume of at most %s in the thin pool %s, at %d %% of the pool's data and of the free space", p.Group.Name, left, p.Name, class.Overprovision)
	}
}
