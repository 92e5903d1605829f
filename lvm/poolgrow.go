package lvm

import (
	"fmt"
	"slices"
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

// usualPolicy is that of a pool for which nothing is declared.
var usualPolicy = PoolPolicy{GrowData: poolNearData, GrowMetadata: poolNearMetadata}

// policyOf finds what is declared for a pool.
func policyOf(declared []Declaration, group, pool string) PoolPolicy {
	i := slices.IndexFunc(declared, func(d Declaration) bool { return d.Name == group && d.Pool.Name == pool })
	if i < 0 {
		return usualPolicy
	}
	return declared[i].Pool
}

// poolNeed is what a pool is to be enlarged by.
type poolNeed struct {
	data     Extents // that it is to have; 0: enough as it is
	metadata Extents // to be added; 0: enough
	refresh  bool    // the kernel does not use yet what the group has given it: more would come on top of that
}

// due decides what a pool needs now, as far as the group can give it.
func (p pool) due(s poolStatus, policy PoolPolicy) (need poolNeed) {
	if !p.ours || !p.made || s.broken() {
		return poolNeed{}
	}
	if reached(s.metadataUsed, s.metadataTotal, policy.GrowMetadata) {
		need.metadata = p.moreMetadata()
	}
	whole := p.dataFor(p.promised, 100) // more is of no use
	if reached(s.dataUsed, s.dataTotal, policy.GrowData) && whole > p.data {
		step := max(p.data/growDataPart, p.group.round(poolStep))
		room := max(0, p.room()-p.metadataCost(need.metadata))
		if data := min(p.data+min(step, room), whole); data > p.data {
			need.data = data
		}
	}
	if need != (poolNeed{}) && p.behind(s) {
		return poolNeed{refresh: true}
	}
	return need
}

// behind tells whether the kernel has the pool smaller than the group: somebody enlarges it just now, or the last enlargement
// was committed and not taken into use.
func (p pool) behind(s poolStatus) bool {
	return s.dataTotal < int64(p.group.bytes(p.data)/p.chunk) || s.metadataTotal < int64(p.group.bytes(p.metadata)/poolMetadataBlock)
}

// moreMetadata is how much a pool's metadata can grow by now: a half, or as much as there is room for.
func (p pool) moreMetadata() Extents {
	most := Extents(poolMetadataMax/p.group.ExtentSize) - p.metadata
	more := min(max(1, p.metadata/growMetadataPart), most)
	for more > 0 && p.metadataCost(more) > p.group.free() {
		more--
	}
	return max(0, more)
}

// metadataCost is what so much more metadata takes from the group: LVM's spare, for repairs, has to grow with it.
func (p pool) metadataCost(more Extents) Extents {
	if more == 0 {
		return 0
	}
	return more + max(0, p.metadata+more-spareOf(p.group))
}

// crowded says why the pool may promise nothing more; "" if it may. Room that the group still has counts as the pool's:
// it will get it.
func (p pool) crowded(s poolStatus) string {
	name, group := p.group.Name+"/"+p.name, p.group.Name
	theirs := fmt.Sprintf("an admin made the pool, so that only an admin enlarges it: do that (lvextend %s; for the metadata, with --poolmetadatasize), or delete volumes or snapshots in it", name)
	switch most := p.data + p.room(); {
	case s.broken():
		return fmt.Sprintf("the thin pool %s takes no writes (%s): nothing new is made in it until it is repaired", name, s.words())
	case p.promised > p.promise(most, 100) && reached(s.dataUsed, int64(p.promise(most, 100)), poolNearData) && !p.ours:
		return fmt.Sprintf("the thin pool %s is nearly full: %s of %s are written, and %s are promised; %s",
			name, Bytes(s.dataUsed)*p.chunk, p.group.bytes(p.data), Bytes(p.promised)*p.chunk, theirs)
	case p.promised > p.promise(most, 100) && reached(s.dataUsed, int64(p.promise(most, 100)), poolNearData):
		return fmt.Sprintf("the thin pool %s is nearly full: %s of %s are written, %s are promised, and volume group %s has %s left to enlarge it with; delete volumes or snapshots in it, or add a disk to the group",
			name, Bytes(s.dataUsed)*p.chunk, p.group.bytes(p.data), Bytes(p.promised)*p.chunk, group, p.group.bytes(p.room()))
	case reached(s.metadataUsed, s.metadataTotal, poolNearMetadata) && !p.ours:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s); %s", name, percent(s.metadataUsed, s.metadataTotal), theirs)
	case reached(s.metadataUsed, s.metadataTotal, poolNearMetadata) && p.moreMetadata() == 0:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s), and volume group %s has no room to enlarge it; delete snapshots or volumes in it, or add a disk to the group",
			name, percent(s.metadataUsed, s.metadataTotal), group)
	}
	return ""
}
