package alloc

import (
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// An overprovisioned thin pool is extended as it fills, and so is the metadata of any pool, while the volume group has free
// extents. Only the driver does that, because no dmeventd runs. Once the group lacks the extents that the pool would need, the
// pool provisions no more.
//
//	Due              the extension that the pool needs now
//	OvercommitReason why the pool provisions no more
//
// Both are functions of the group and the kernel's status. The driver does not extend an admin's pool.

// The size of an extension: of data a fifth, and at least poolStep if the group has it; of metadata a half.
const (
	growDataPart     = 5
	growMetadataPart = 2
)

// UsualPolicy is the policy of a pool without a declaration.
var UsualPolicy = lvm.PoolPolicy{AutoextendThreshold: lvm.PoolDataThreshold, MetadataAutoextendThreshold: lvm.PoolMetadataThreshold}

// PolicyOf returns the declared policy of a pool, or UsualPolicy.
func PolicyOf(declared []lvm.Declaration, group lvm.VGName, pool string) lvm.PoolPolicy {
	i := slices.IndexFunc(declared, func(d lvm.Declaration) bool { return d.Name == group && d.Pool.Name == pool })
	if i < 0 {
		return UsualPolicy
	}
	return declared[i].Pool
}

// PoolNeed is the extension that a pool needs.
type PoolNeed struct {
	Data     lvm.Extents // afterwards; 0: no extension
	Metadata lvm.Extents // to add; 0: none
	Refresh  bool        // the kernel does not use the last extension yet: refresh before another one
}

// Due returns the extension that a pool needs now, limited by the group's free extents.
func (p Pool) Due(s lvm.PoolStatus, policy lvm.PoolPolicy) (need PoolNeed) {
	if !p.Ours || !p.Made || s.IsFailed() {
		return PoolNeed{}
	}
	if lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, policy.MetadataAutoextendThreshold) {
		need.Metadata = p.moreMetadata()
	}
	whole := p.dataFor(p.Provisioned, 100) // more would be useless
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

// isKernelSmaller reports whether the kernel's pool is smaller than LVM's: another process is extending it, or nothing loaded
// the last extension.
func (p Pool) isKernelSmaller(s lvm.PoolStatus) bool {
	return s.DataTotal < int64(p.Group.Bytes(p.Data)/p.Chunk) || s.MetadataTotal < int64(p.Group.Bytes(p.Metadata)/PoolMetadataBlock)
}

// moreMetadata returns the extension of a pool's metadata: a half, or as much as the group has.
func (p Pool) moreMetadata() lvm.Extents {
	most := lvm.Extents(PoolMetadataMax/p.Group.ExtentSize) - p.Metadata
	more := min(max(1, p.Metadata/growMetadataPart), most)
	for more > 0 && p.metadataCost(more) > p.Group.FreeExtents() {
		more--
	}
	return max(0, more)
}

// metadataCost counts the extents that more metadata needs: LVM's spare must grow with it.
func (p Pool) metadataCost(more lvm.Extents) lvm.Extents {
	if more == 0 {
		return 0
	}
	return more + max(0, p.Metadata+more-spareOf(p.Group))
}

// OvercommitReason returns why the pool can provision no more; "" if it can. The group's free extents count as the pool's,
// because the driver extends it.
func (p Pool) OvercommitReason(s lvm.PoolStatus) string {
	name, group := string(p.Group.Name)+"/"+p.Name, p.Group.Name
	theirs := fmt.Sprintf("an admin created the pool, so the driver does not extend it: extend it (lvextend -L+SIZE %s; its metadata: lvextend --poolmetadatasize +SIZE %s), or delete volumes or snapshots in it", name, name)
	switch most := p.Data + p.Growable(); {
	case s.IsFailed():
		return fmt.Sprintf("the thin pool %s takes no writes (%s): the driver creates nothing in it until it is repaired", name, s.FailureReason())
	case p.Provisioned > p.ProvisionLimit(most, 100) && lvm.IsAbove(s.DataUsed, int64(p.ProvisionLimit(most, 100)), lvm.PoolDataThreshold) && !p.Ours:
		return fmt.Sprintf("the thin pool %s is nearly full: %s are written, and %s are provisioned; %s",
			name, lvm.Share(lvm.Bytes(s.DataUsed)*p.Chunk, p.Group.Bytes(p.Data)), lvm.Bytes(p.Provisioned)*p.Chunk, theirs)
	case p.Provisioned > p.ProvisionLimit(most, 100) && lvm.IsAbove(s.DataUsed, int64(p.ProvisionLimit(most, 100)), lvm.PoolDataThreshold):
		return fmt.Sprintf("the thin pool %s is nearly full: %s are written, %s are provisioned, and volume group %s has %s free to extend it. Delete volumes or snapshots in it, or add a disk to the group (vgextend %s DISK)",
			name, lvm.Share(lvm.Bytes(s.DataUsed)*p.Chunk, p.Group.Bytes(p.Data)), lvm.Bytes(p.Provisioned)*p.Chunk, group, p.Group.Bytes(p.Growable()), group)
	case lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, lvm.PoolMetadataThreshold) && !p.Ours:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s); %s", name, lvm.Percent(s.MetadataUsed, s.MetadataTotal), theirs)
	case lvm.IsAbove(s.MetadataUsed, s.MetadataTotal, lvm.PoolMetadataThreshold) && p.moreMetadata() == 0:
		return fmt.Sprintf("the metadata of the thin pool %s is nearly full (%s), and volume group %s has insufficient capacity to extend it. Delete snapshots or volumes in it, or add a disk to the group (vgextend %s DISK)",
			name, lvm.Percent(s.MetadataUsed, s.MetadataTotal), group, group)
	}
	return ""
}
