package alloc

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// The driver creates a thin pool (lvmthin(7)) for the first volume of a class, and extends it with its provisioned size: its
// data times the class's overprovision must be at least what all its full volumes and snapshots would hold. It uses an admin's
// pool as it is, and never extends it.
//
//	pool        the existing pool, or the one to create
//	promisable  what can still be provisioned: the largest thin volume
//	growth      the pool's change before it provisions more
//
// The unit of sizes is the pool's chunk: a volume has whole chunks, and a rest of the pool's data below one is useless.

// Sizes of the driver's pools.
const (
	PoolChunk     = 64 * lvm.KiB // doubled for groups where it would need too much metadata
	poolPerChunk  = 64           // bytes of metadata for one mapping (lvmthin(7), "Size of pool metadata LV")
	poolSnapshots = 4            // mappings of each chunk for which the metadata has space: as many volumes and snapshots may differ

	PoolMetadataBlock = 4 * lvm.KiB              // the kernel's unit for metadata
	PoolMetadataMax   = 15*lvm.GiB + 768*lvm.MiB // below the limit of dm-thin, which is about 15.8 GiB
	poolStep          = 1 * lvm.GiB              // the smallest extension of a pool, unless the group has less
	SpareSuffix       = "_pmspare"
)

// Pool is an existing thin pool, or the one to create (Made is false).
type Pool struct {
	Group       lvm.Group
	Space       lvm.Group // with the free extents that its data can grow onto
	Name        string
	Made        bool
	Ours        bool        // the driver extends it with its provisioned size
	Data        lvm.Extents // of the data LV
	Chunk       lvm.Bytes
	Provisioned lvm.Extents // chunks: the provisioned size
	Metadata    lvm.Extents
	spare       lvm.Extents // of LVM's spare, if LVM creates it with the pool
	debris      *lvm.LV     // an LV with the pool's name that a killed lvcreate left
	spares      []lvm.LV    // LVs that a killed lvcreate may have left: LVM decides (sparesArgs)
}

// PoolGrowth is a pool's change before it provisions more. nil: none.
type PoolGrowth struct {
	Name     string
	Cluster  string
	Group    lvm.Group
	Data     lvm.Extents   // afterwards
	Ranges   []ExtentRange // lvextend's additional extents; nil: none
	Debris   *lvm.LV       // removed before the pool is created
	Spares   []lvm.LV      // removed too, if LVM created them
	Home     []ExtentRange // lvcreate: one range for data, metadata and LVM's spare; nil: the pool exists
	First    lvm.Extents   // the data that it is created with
	Metadata lvm.Extents
	Chunk    lvm.Bytes
}

// PoolOf returns the pool of a class in the group, or plans a new one. KindInsufficientCapacity: the group can have no thin
// volume of the class.
func PoolOf(g lvm.Group, class lvm.Class) (Pool, error) {
	i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == class.Pool })
	if i < 0 {
		return newPool(g, class)
	}
	lv := g.LVs[i]
	switch {
	case lv.Thin == nil && lv.IsManagedPool() && len(lv.UsedBy) == 0:
		// LVM first commits an LV with the pool's name and tags on the metadata's extents, to wipe them.
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
	p := Pool{Group: g, Space: spaceOf(g, dataOf(g, lv)), Name: lv.Name, Made: true, Ours: lv.IsManagedPool(), Data: lv.Extents, Chunk: lv.Thin.ChunkSize}
	p.Provisioned = p.provisioned()
	for _, other := range g.LVs {
		if other.Name == lv.Thin.Metadata {
			p.Metadata = other.Extents
		}
	}
	return p, nil
}

// dataOf returns the data LV of a thin pool; zero if there is none.
func dataOf(g lvm.Group, pool lvm.LV) lvm.LV {
	if i := slices.IndexFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == pool.Thin.Data }); i >= 0 {
		return g.LVs[i]
	}
	return lvm.LV{}
}

// newPool plans a pool whose metadata suffices for the whole group.
func newPool(g lvm.Group, class lvm.Class) (Pool, error) {
	var whole lvm.Extents
	for _, pv := range g.PVs {
		whole += pv.Extents
	}
	p := Pool{Group: g, Name: class.Pool, Ours: true, Chunk: PoolChunk}
	if spareOf(g) == 0 { // LVM creates no second spare: with one, a volume with its host name has another origin
		p.spares = nameless(g)
	}
	need := func() lvm.Bytes { return g.Bytes(whole) / p.Chunk * poolPerChunk * poolSnapshots }
	for need() > PoolMetadataMax {
		p.Chunk *= 2
	}
	p.Provisioned = p.provisioned() // to volumes that are planned
	p.Metadata = g.ExtentsFor(max(need(), lvm.PoolMetadataMin))
	if spare := spareOf(g); spare < p.Metadata {
		p.spare = p.Metadata - spare
	}
	room := lvm.Extents(0)
	for _, space := range spaces(g) {
		if fits := slices.ContainsFunc(space.PVs, func(pv lvm.PV) bool { return pv.LongestRun() > p.Fixed() }); fits && space.FreeExtents() > room {
			p.Space, room = space, space.FreeExtents()
		}
	}
	if room == 0 {
		return Pool{}, lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s lacks %s of free space in one piece on one disk, which the thin pool %s needs", g.Name, g.Bytes(p.Fixed()+1), p.Name)
	}
	return p, nil
}

// nameless lists the volumes without tags that have a name of LVM's choice: most of them are an admin's.
func nameless(g lvm.Group) (list []lvm.LV) {
	for _, lv := range g.LVs {
		number, is := strings.CutPrefix(lv.Name, "lvol")
		if is && number != "" && strings.Trim(number, "0123456789") == "" && !lv.Hidden && len(lv.Tags) == 0 && len(lv.UsedBy) == 0 && lv.Type == string(lvm.LayoutLinear) {
			list = append(list, lv)
		}
	}
	return list
}

// Fixed counts the extents that creating the pool needs besides its data.
func (p Pool) Fixed() lvm.Extents { return p.Metadata + p.spare }

// spareOf returns the size of LVM's spare for the repair of pool metadata, which is as large as the group's largest.
func spareOf(g lvm.Group) (n lvm.Extents) {
	for _, lv := range g.LVs {
		if lv.Hidden && strings.HasSuffix(lv.Name, SpareSuffix) {
			n = max(n, lv.Extents)
		}
	}
	return n
}

// Chunks counts the chunks of a full volume of n extents.
func (p Pool) Chunks(n lvm.Extents) lvm.Extents {
	return lvm.Extents((p.Group.Bytes(n) + p.Chunk - 1) / p.Chunk)
}

// Growable counts the extents by which the pool's data can be extended, limited by what its metadata can map.
func (p Pool) Growable() lvm.Extents {
	switch {
	case !p.Ours:
		return 0
	case !p.Made:
		return p.Space.FreeExtents() - p.Fixed()
	}
	described := p.Group.Bytes(p.Metadata) / poolPerChunk * p.Chunk / p.Group.ExtentSize
	return max(0, min(p.Space.FreeExtents(), lvm.Extents(described)-p.Data))
}

// maxVolume limits a volume, so that its bytes and percentages of its chunks do not overflow.
func maxVolume(g lvm.Group) lvm.Extents { return min(maxExtents, lvm.Extents((1<<62)/g.ExtentSize)) }

// ProvisionLimit returns the total number of chunks that a pool with n extents of data can provision.
func (p Pool) ProvisionLimit(n lvm.Extents, percent int) lvm.Extents {
	return min(lvm.Extents((1<<62)/p.Chunk), lvm.Extents(p.Group.Bytes(n)/p.Chunk)*lvm.Extents(percent)/100)
}

// dataFor counts the extents of data that n provisioned chunks need.
func (p Pool) dataFor(n lvm.Extents, percent int) lvm.Extents {
	chunks := (n*100 + lvm.Extents(percent) - 1) / lvm.Extents(percent)
	return p.Group.ExtentsFor(max(1, lvm.Bytes(chunks)*p.Chunk))
}

// promisable returns the size of the largest thin volume of the class in the group.
func promisable(g lvm.Group, class lvm.Class) lvm.Extents {
	p, err := PoolOf(g, class)
	if err != nil {
		return 0
	}
	left := p.ProvisionLimit(p.Data+p.Growable(), class.Overprovision) - p.Provisioned
	return max(0, min(maxVolume(g), lvm.Extents(lvm.Bytes(left)*p.Chunk/g.ExtentSize)))
}

// Growth plans the pool's change before it provisions n extents in the place of old extents; nil: none.
// KindInsufficientCapacity: the pool cannot provision that much.
func (p Pool) Growth(n, old lvm.Extents, class lvm.Class, cluster string) (*PoolGrowth, error) {
	provisioned := p.Provisioned + p.Chunks(n) - p.Chunks(old)
	room := p.Growable()
	if provisioned > p.ProvisionLimit(p.Data+room, class.Overprovision) {
		return nil, p.refusal(class, old)
	}
	need := p.dataFor(provisioned, class.Overprovision)
	if p.Made && need <= p.Data {
		return nil, nil
	}
	grown := min(p.Data+room, max(need, p.Data+p.Group.ExtentsFor(poolStep)))
	return p.To(grown, cluster), nil
}

// To returns the change that gives the pool so many extents of data, for which the caller has checked the free extents.
func (p Pool) To(grown lvm.Extents, cluster string) *PoolGrowth {
	growth := &PoolGrowth{Name: p.Name, Cluster: cluster, Group: p.Group, Data: grown, Metadata: p.Metadata, Chunk: p.Chunk}
	rest := p.Space
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

// refusal returns an error with the size that the pool can still provision.
func (p Pool) refusal(class lvm.Class, old lvm.Extents) error {
	left := class.DataSize(p.Group.Bytes(promisable(p.Group, class) + old))
	switch {
	case !p.Ours && old > 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s for this volume, at %d %% of its %s: extend it (lvextend -L+SIZE %s/%s), or delete volumes or snapshots", p.Group.Name, p.Name, left, class.Overprovision, p.Group.Bytes(p.Data), p.Group.Name, p.Name)
	case !p.Ours:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s more, at %d %% of its %s: extend it (lvextend -L+SIZE %s/%s), or delete volumes or snapshots", p.Group.Name, p.Name, left, class.Overprovision, p.Group.Bytes(p.Data), p.Group.Name, p.Name)
	case old > 0:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "the thin pool %s/%s can provision at most %s for this volume: provisioned sizes are limited to %d %% of its data and of the free space in the volume group%s", p.Group.Name, p.Name, left, class.Overprovision, mixedBlocks(p.Group))
	default:
		return lvm.Errorf(lvm.KindInsufficientCapacity, "volume group %s has capacity for a volume of at most %s in the thin pool %s: provisioned sizes are limited to %d %% of the pool's data and of the free space in the volume group%s", p.Group.Name, left, p.Name, class.Overprovision, mixedBlocks(p.Group))
	}
}
