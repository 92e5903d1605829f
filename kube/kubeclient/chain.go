package kubeclient

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// A reference in one direction proves nothing: whoever may create a PersistentVolume or a VolumeSnapshotContent can write
// any reference into it, and a tenant can write any volume's name into a claim. Only references that agree in both
// directions bind two objects. Code that changes or deletes an object because of another one must call the functions of
// this file.

// Chain checks that a PersistentVolume, a claim, a logical volume and a node belong together. The volume names the claim
// and its UID, and the claim names the volume. The volume handle is one of this driver's, and no other PersistentVolume
// (sameHandle) has it. The volume is usable on that node alone; the selected node of a bound claim does not count
// (pending.NodeOfClaim). The error names the broken link.
func Chain(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, node string, sameHandle ...string) error {
	if err := Placed(pv, node, sameHandle...); err != nil {
		return err
	}
	return Bound(pv, claim)
}

// Placed checks the part of a chain that needs no claim: PersistentVolume, logical volume, node.
func Placed(pv *corev1.PersistentVolume, node string, sameHandle ...string) error {
	if node == "" || !pending.IsOn(pv, node) {
		return fmt.Errorf("PersistentVolume %s is not a volume of %s with node affinity to node %s only", pv.Name, api.DriverName, Quoted(node))
	}
	if _, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle); err != nil {
		return fmt.Errorf("PersistentVolume %s has the volume handle %s, which is not one of this driver's", pv.Name, Quoted(pv.Spec.CSI.VolumeHandle))
	}
	for _, other := range sameHandle {
		if other != pv.Name {
			return SharedHandleError(pv.Name, other, pv.Spec.CSI.VolumeHandle)
		}
	}
	return nil
}

// SharedHandleError says that two PersistentVolumes have the same handle, and what to do.
func SharedHandleError(name, other, handle string) error {
	return fmt.Errorf("PersistentVolume %s and PersistentVolume %s have the same volume handle %s: find the one that is not in use, set its reclaim policy to Retain, "+
		"and delete it (with the policy Delete, the driver refuses)", name, other, handle)
}

// Bound checks that a PersistentVolume, of any driver, and a claim name each other.
func Bound(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	ref := pv.Spec.ClaimRef
	switch {
	case ref == nil || ref.UID == "":
		return fmt.Errorf("PersistentVolume %s is not bound to a claim", pv.Name)
	case ref.Kind != "" && ref.Kind != KindClaim:
		return fmt.Errorf("PersistentVolume %s refers to a %s, not to a claim", pv.Name, Quoted(ref.Kind))
	case ref.Namespace != claim.Namespace || ref.Name != claim.Name || ref.UID != claim.UID:
		return fmt.Errorf("PersistentVolume %s names claim %s/%s (UID %s), not claim %s (UID %s)",
			pv.Name, ref.Namespace, ref.Name, ref.UID, KeyOf(claim), claim.UID)
	case claim.Spec.VolumeName == "":
		return fmt.Errorf("PersistentVolume %s names claim %s, but that claim is not bound", pv.Name, KeyOf(claim))
	case claim.Spec.VolumeName != pv.Name:
		return fmt.Errorf("PersistentVolume %s names claim %s, but that claim names PersistentVolume %s", pv.Name, KeyOf(claim), Quoted(claim.Spec.VolumeName))
	}
	return nil
}

// SnapshotChain checks a VolumeSnapshotContent and a VolumeSnapshot as chain checks a volume and a claim.
func SnapshotChain(c *Content, s *Snapshot, node string) error {
	if err := PlacedContent(c, node); err != nil {
		return err
	}
	return boundSnapshot(c, s)
}

// RestoreChain checks a claim, the VolumeSnapshot that it names, the content of a node that the VolumeSnapshot names (nil:
// none is known), and a snapshot against each other. lvm.KindBusy: the content may become ready, or bound; lvm.KindInvalid: refused.
func RestoreChain(claim *corev1.PersistentVolumeClaim, s *Snapshot, c *Content, node string, of lvm.ID) error {
	if c == nil || c.Spec.VolumeSnapshotRef.UID == "" { // it may become ready, or bound, in a moment
		return lvm.Errorf(lvm.KindBusy, "cannot restore snapshot %[2]s for claim %[1]s yet: VolumeSnapshot %[3]s/%[4]s names VolumeSnapshotContent %[5]s, which is not bound and ready on node %[6]s, where that snapshot is; retry. If the content's label %[7]s names another node, correct it",
			KeyOf(claim), of, s.Namespace, s.Name, Quoted(s.Status.Content), node, api.LabelManagedBy)
	}
	if err := SnapshotChain(c, s, node); err != nil {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: %[3]w", KeyOf(claim), of, err)
	}
	if handle, err := lvm.ParseID(c.Status.SnapshotHandle); err != nil || handle != of {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: VolumeSnapshotContent %[3]s of its VolumeSnapshot %[4]s/%[5]s has snapshot %[6]s",
			KeyOf(claim), of, c.Name, s.Namespace, s.Name, Quoted(c.Status.SnapshotHandle))
	}
	if !OwnsSnapshot(c, of) && !OwnsMember(c, s, of) {
		return lvm.Errorf(lvm.KindInvalid, "cannot restore snapshot %[2]s for claim %[1]s: VolumeSnapshotContent %[3]s has it, but the driver did not take it for VolumeSnapshot %[4]s/%[5]s (UID %[6]s)",
			KeyOf(claim), of, c.Name, s.Namespace, s.Name, s.UID)
	}
	return nil
}

// PlacedContent checks the part of the chain that needs no VolumeSnapshot. A content whose snapshot was never taken has no
// handle.
func PlacedContent(c *Content, node string) error {
	if c.Spec.Driver != api.DriverName || node == "" || c.Labels[api.LabelManagedBy] != node {
		return fmt.Errorf("VolumeSnapshotContent %s is not one of %s on node %s", c.Name, api.DriverName, Quoted(node))
	}
	given, taken := c.Spec.Source.SnapshotHandle, c.Status.SnapshotHandle
	if given != "" && taken != "" && given != taken {
		return fmt.Errorf("VolumeSnapshotContent %s has two snapshot handles, %s and %s", c.Name, Quoted(given), Quoted(taken))
	}
	for _, handle := range []string{given, taken} {
		if _, err := lvm.ParseID(handle); handle != "" && err != nil {
			return fmt.Errorf("VolumeSnapshotContent %s has the snapshot handle %s, which is not one of this driver's", c.Name, Quoted(handle))
		}
	}
	return nil
}

// boundSnapshot checks that a VolumeSnapshotContent and a VolumeSnapshot name each other.
func boundSnapshot(c *Content, s *Snapshot) error {
	ref := c.Spec.VolumeSnapshotRef
	switch {
	case ref.UID == "":
		return fmt.Errorf("VolumeSnapshotContent %s is not bound to a snapshot", c.Name)
	case ref.Kind != "" && ref.Kind != KindSnapshot:
		return fmt.Errorf("VolumeSnapshotContent %s refers to a %s, not to a snapshot", c.Name, Quoted(ref.Kind))
	case ref.Namespace != s.Namespace || ref.Name != s.Name || ref.UID != s.UID:
		return fmt.Errorf("VolumeSnapshotContent %s names snapshot %s/%s (UID %s), not snapshot %s/%s (UID %s)",
			c.Name, ref.Namespace, ref.Name, ref.UID, s.Namespace, s.Name, s.UID)
	case s.Status.Content == "":
		return fmt.Errorf("VolumeSnapshotContent %s names snapshot %s, but that snapshot is not bound", c.Name, c.SnapshotKey())
	case s.Status.Content != c.Name:
		return fmt.Errorf("VolumeSnapshotContent %s names snapshot %s, but that snapshot names VolumeSnapshotContent %s",
			c.Name, c.SnapshotKey(), Quoted(s.Status.Content))
	}
	return nil
}

// Quoted quotes text that others wrote, cut to the length of an object's name.
func Quoted(text string) string {
	const most = 253
	if len(text) > most {
		return fmt.Sprintf("%.*q...", most, text)
	}
	return fmt.Sprintf("%q", text)
}

// HasSnapshot reports whether a content of this driver has a snapshot, or had it before its status was overwritten.
func HasSnapshot(c *Content, of lvm.ID) bool {
	return c.Spec.Driver == api.DriverName && (c.Status.SnapshotHandle == of.String() || OwnsSnapshot(c, of))
}

// OwnsSnapshot reports whether a snapshot belongs to a content: an admin named its handle, or the driver took it for the content's
// VolumeSnapshot. The status does not show that: a node writes it, so its token can write the handle of any snapshot of the group there.
// But the driver derives the name of a logical volume from the UID of the VolumeSnapshot.
func OwnsSnapshot(c *Content, of lvm.ID) bool {
	if c.Spec.Source.SnapshotHandle != "" {
		return c.Spec.Source.SnapshotHandle == of.String()
	}
	return c.Spec.VolumeSnapshotRef.UID != "" && of.LV == lvm.SnapshotName(api.PrefixSnapshot+string(c.Spec.VolumeSnapshotRef.UID))
}

// HasGroup reports whether a content of this driver has a group snapshot, or had it before its status was overwritten.
func HasGroup(c *GroupContent, of lvm.ID) bool {
	group, given := string(c.Spec.GroupSnapshotRef.UID), c.Spec.Source.Existing.GroupSnapshotHandle
	taken := given == "" && group != "" && of.LV == lvm.GroupSnapshotName(api.PrefixGroupSnapshot+group)
	return c.Spec.Driver == api.DriverName && (taken || given == of.String() || c.Status.GroupSnapshotHandle == of.String())
}

// OwnsMember reports whether a snapshot belongs to a content because the driver took it for the group snapshot that owns the content's
// VolumeSnapshot. A tenant can write any name and owner into a VolumeSnapshot, and a node the status. But the snapshot-controller derives the
// name of a member's content from the UID of the group snapshot and the volume, and that of any other content from the UID of its
// VolumeSnapshot. The driver derives the names of its logical volumes from the UID of the group snapshot.
func OwnsMember(c *Content, s *Snapshot, of lvm.ID) bool {
	volume := c.Spec.Source.VolumeHandle
	if volume == "" {
		return false
	}
	for _, owner := range s.OwnerReferences {
		name := sha256.Sum256([]byte(string(owner.UID) + volume))
		if owner.Kind == kindGroupSnapshot && c.Name == api.PrefixContent+hex.EncodeToString(name[:]) && isMember(of, string(owner.UID)) {
			return true
		}
	}
	return false
}

// kindGroupSnapshot is the kind of the owner of a group snapshot's members.
const kindGroupSnapshot = "VolumeGroupSnapshot"

// isMember reports whether a snapshot has a name that the driver gives to members of a group snapshot.
func isMember(of lvm.ID, groupUID string) bool {
	group := lvm.GroupSnapshotName(api.PrefixGroupSnapshot + groupUID)
	for i := range lvm.MaxGroupMembers {
		if of.LV == lvm.SnapshotName(lvm.MemberName(group, i)) {
			return true
		}
	}
	return false
}
