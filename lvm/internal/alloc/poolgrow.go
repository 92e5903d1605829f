package alloc

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// A thin pool whose class promises more than it holds (overprovision above 1) is enlarged as it fills, and so is the
// metadata of any pool, while the volume group has room; nobody else does that (no dmeventd runs). Once the group has no
// room for what the pool would need, nothing more is promised in it.
//
//	due      what is to be added now
//	crowded  why nothing may be promised any more
//
// Both are functions of the group and of what the kernel tells. A pool that an admin made is not enlarged.

// How much is added when it is time: data a fifth, but no less than poolStep if there is as much; metadata a half.
const (
	growDataPart     = 5
	growMetadataPart = 2
)

// UsualPolicy is that of a pool for which nothing is declared.
var UsualPolicy = lvm.PoolPolicy{AutoextendThreshold: lvm.PoolDataThreshold, MetadataAutoextendThreshold: lvm.PoolMetadataThreshold}

// PolicyOf finds what is declared for a pool.
func PolicyOf(declared []lvm.Declaration, group, pool string) lvm.PoolPolicy {
	i := slices.IndexFunc(declared, func(d lvm.Declaration) bool { return d.Name == group && d.Pool.Name == pool })
	if i < 0 {
		return UsualPolicy
	}
	return declared[i].Pool
}

// PoolNeed is what a pool is to be enlarged by.
type PoolNeed struct {
	Data     lvm.Extents // that it is to have; 0: enough as it is
	Metadata lvm.Extents // to be added; 0: enough
	Refresh  bool        // the kernel does not use yet what the group has given it: more would come on top of that
}

// Due decides what a pool needs now, as far as the group can give it.
func (p Pool) Due(s lvm.PoolStatus, policy lvm.PoolPolicy) (need PoolNeed) {
	if !p.Ours || !p.Made || s.IsFailed() {
		return PoolNeed{}
	}
	if lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, policy.MetadataAutoextendThreshold) {
		need.Metadata = p.moreMetadata()
	}
	whole := p.dataFor(p.Promised, 100) // more is of no use
	if lvm.IsAbove(s.DataUsed, s.DataTotal, policy.AutoextendThreshold) && whole > p.Data {
		step := max(p.Data/growDataPart, p.Group.ExtentsFor(poolStep))
		room := max(0, p.Growable()-p.metadataCost(need.Metadata))
		if data := min(p.Data+min(step, room), whole); data > p.Data {
			need.Data = data
		}
	}
	if need != (PoolNeed{}) && p.isKernelSmaller(s) {
		return PoolNeed{Refresh: true}
	}
	return need
}

// isKernelSmaller tells whether the kernel has the pool smaller than the group: somebody enlarges it just now, or the last enlargement
// was committed and not taken into use.
func (p Pool) isKernelSmaller(s lvm.PoolStatus) bool {
	return s.DataTotal < int64(p.Group.Bytes(p.Data)/p.Chunk) || s.MetadataTotal < int64(p.Group.Bytes(p.Metadata)/PoolMetadataBlock)
}

// moreMetadata is how much a pool's metadata can grow by now: a half, or as much as there is room for.
func (p Pool) moreMetadata() lvm.Extents {
	most := lvm.Extents(PoolMetadataMax/p.Group.ExtentSize) - p.Metadata
	more := min(max(1, p.Metadata/growMetadataPart), most)
	for more > 0 && p.metadataCost(more) > p.Group.FreeExtents() {
		more--
	}
	return max(0, more)
}

// metadataCost is what so much more metadata takes from the group: LVM's spare, for repairs, has to grow with it.
func (p Pool) metadataCost(more lvm.Extents) lvm.Extents {
	if more == 0 {
		return 0
	}
	return more + max(0, p.Metadata+more-spareOf(p.Group))
}

// OvercommitReason says why the pool may promise nothing more; "" if it may. Room that the group still has counts as the pool's:
// it will get it.
func (p Pool) OvercommitReason(s lvm.PoolStatus) string {
	name, group := p.Group.Name+"/"+p.Name, p.Group.Name
	theirs := fmt.Sprintf("an admin created the pool, so the driver does not extend it: extend it (lvextend %s; for the metadata, with --poolmetadatasize), or delete volumes or snapshots in it", name)
	switch most := p.Data + p.Growable(); {
	case s.IsFailed():
		return fmt.Sprintf("the thin pool %s takes no writes (%s): the driver creates nothing in it until it is repaired", name, s.FailureReason())
	case p.Promised > p.Promise(most, 100) && lvm.IsAbove(s.DataUsed, int64(p.Promise(most, 100)), lvm.PoolDataThreshold) && !p.Ours:
		return fmt.Sprintf("the thin pool %s is nearly full: %s of %s are written, and %s are provisioned; %s",
			name, lvm.Bytes(s.DataUsed)*p.Chunk, p.Group.Bytes(p.Data), lvm.Bytes(p.Promised)*p.Chunk, theirs)
	case p.Promised > p.Promise(most, 100) && lvm.IsAbove(s.DataUsed, int64(p.Promise(most, 100)), lvm.PoolDataThreshold):
		return fmt.Sprintf("the thin pool %s is nearly full: %s of %s are written, %s are provisioned, and volume group %s has %s free to extend it; delete volumes or snapshots in it, or add a disk to the group",
			name, lvm.Bytes(s.DataUsed)*p.Chunk, p.Group.Bytes(p.Data), lvm.Bytes(p.Promised)*p.Chunk, group, p.Group.Bytes(p.Growable()))
	case lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, lvm.PoolMetadataThreshold) && !p.Ours:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s); %s", name, lvm.Percent(s.MetadataUsed, s.MetadataTotal), theirs)
	case lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, lvm.PoolMetadataThreshold) && p.moreMetadata() == 0:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s), and volume group %s has insufficient capacity to extend it; delete snapshots or volumes in it, or add a disk to the group",
			name, lvm.Percent(s.MetadataUsed, s.MetadataTotal), group)
	}
	return ""
}
