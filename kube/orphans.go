package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// Orphan is a managed volume or snapshot on this node without an object in this cluster. The driver never removes it.
type Orphan struct {
	lvm.ManagedVolume
	Reason report.Reason
	Why    string // short text for admins
}

// Published returns the orphans in the form of the status document.
func Published(orphans []Orphan) []report.Unreferenced {
	list := []report.Unreferenced{}
	for _, o := range orphans {
		list = append(list, report.Unreferenced{
			Reason: o.Reason, Group: o.Group, LV: o.ID.LV, Handle: o.ID.String(), Name: o.Name, Size: o.Size, Snapshot: o.Snapshot,
			FormerClaim: o.Claim, Cluster: o.Cluster, Text: o.Why,
		})
	}
	return list
}

// OrphanSearch compares a node's disks with the objects of the cluster. It caches what it has proved, so it lists all
// PersistentVolumes and contents at most once a day for volumes and snapshots without an object of the same name.
type OrphanSearch struct {
	Client   *kubeclient.Client
	Holdings func(context.Context) (lvm.ManagedVolumes, error)
	Pause    time.Duration // between two requests

	rounds int
	names  map[string]string // UUID of a volume or snapshot -> its PersistentVolume or content, if that has another name
	groups map[string]string // UUID of a group snapshot's member -> the content of the group snapshot
	proved map[string]bool   // UUIDs of volumes and snapshots that no object refers to
	pvs    []*corev1.PersistentVolume
}

// proofLasts is how many searches use a proof: about a day, at one search per hour.
const proofLasts = 24

// Find returns the orphans, and the PersistentVolumes of the node's volumes that it has read. An error comes from the disks
// or the API server, and means that nothing is proved.
func (s *OrphanSearch) Find(ctx context.Context) (orphans []Orphan, pvs []*corev1.PersistentVolume, err error) {
	if s.rounds%proofLasts == 0 {
		s.names, s.groups, s.proved = map[string]string{}, map[string]string{}, map[string]bool{}
	}
	s.rounds++
	s.pvs = nil
	holdings, err := s.Holdings(ctx)
	if err != nil {
		return nil, nil, err
	}
	var suspects []lvm.ManagedVolume
	for _, o := range holdings.Owned {
		switch abandoned, there, err := s.lookUp(ctx, o); {
		case err != nil:
			return nil, nil, err
		case abandoned:
			orphans = append(orphans, Orphan{o, report.ReasonAbandoned, "its claim was released, and its PersistentVolume is retained"})
		case o.Foreign:
			orphans = append(orphans, Orphan{o, report.ReasonOtherCluster, fmt.Sprintf("created by the cluster %q", o.Cluster)})
		case !there:
			suspects = append(suspects, o)
		}
	}
	rest, err := s.prove(ctx, suspects)
	return append(orphans, rest...), s.pvs, err
}

// lookUp reads the object that csi-provisioner or csi-snapshotter would have named after the volume.
func (s *OrphanSearch) lookUp(ctx context.Context, o lvm.ManagedVolume) (abandoned, there bool, err error) {
	if o.Foreign {
		return false, false, nil
	}
	kubeclient.Sleep(ctx, s.Pause)
	if o.Snapshot {
		if there, err = s.hasContent(ctx, o); err == nil && !there {
			there, err = s.hasGroupContent(ctx, o)
		}
		return false, there, err
	}
	pv, err := s.Client.Volume(ctx, cmp.Or(s.names[o.UUID], o.Name))
	if err != nil || pv == nil || !holds(pv, o) {
		return false, false, err
	}
	s.pvs = append(s.pvs, pv)
	return isAbandoned(pv), true, nil
}

// isAbandoned reports whether a PersistentVolume is left from a released claim. One that an admin has bound again is not,
// although it still has the annotation.
func isAbandoned(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[api.AnnotationAbandonedSince] != "" && kubeclient.IsReleased(pv)
}

// holds reports whether the PersistentVolume refers to the volume.
func holds(pv *corev1.PersistentVolume, o lvm.ManagedVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == api.DriverName && pv.Spec.CSI.VolumeHandle == o.ID.String()
}

func (s *OrphanSearch) hasContent(ctx context.Context, o lvm.ManagedVolume) (bool, error) {
	name := cmp.Or(s.names[o.UUID], api.PrefixContent+strings.TrimPrefix(o.Name, api.PrefixSnapshot))
	var c kubeclient.Content
	there, err := kubeclient.Get(ctx, s.Client.Snapshots, "volumesnapshotcontents", "", name, &c)
	return there && kubeclient.HasSnapshot(&c, o.ID), err
}

// prove returns the suspects that no object of any name refers to and that are not being created or removed.
func (s *OrphanSearch) prove(ctx context.Context, suspects []lvm.ManagedVolume) ([]Orphan, error) {
	for _, o := range suspects {
		delete(s.names, o.UUID)
		delete(s.groups, o.UUID)
	}
	if slices.ContainsFunc(suspects, func(o lvm.ManagedVolume) bool { return !s.proved[o.UUID] }) {
		if err := s.searchVolumes(ctx, suspects); err != nil {
			return nil, err
		}
		if err := s.searchContents(ctx, suspects); err != nil {
			return nil, err
		}
		if err := s.searchGroups(ctx, suspects); err != nil {
			return nil, err
		}
	}
	now, err := s.Holdings(ctx) // a volume that was deleted meanwhile is no orphan
	if err != nil {
		return nil, err
	}
	var orphans []Orphan
	for _, o := range suspects {
		still := slices.ContainsFunc(now.Owned, func(n lvm.ManagedVolume) bool { return n.UUID == o.UUID })
		if !still || s.names[o.UUID] != "" || s.groups[o.UUID] != "" {
			continue
		}
		kind, why, err := s.classify(ctx, o)
		if err != nil {
			return nil, err
		}
		if kind != "" {
			s.proved[o.UUID] = true
			orphans = append(orphans, Orphan{o, kind, why})
		}
	}
	return orphans, nil
}

// searchVolumes searches all PersistentVolumes for those of the suspects.
func (s *OrphanSearch) searchVolumes(ctx context.Context, suspects []lvm.ManagedVolume) error {
	return s.Client.EachVolume(ctx, func(pv *corev1.PersistentVolume) {
		for _, o := range suspects {
			if holds(pv, o) {
				s.names[o.UUID] = pv.Name
				s.pvs = append(s.pvs, pv)
			}
		}
	})
}

// Holder returns the name of the PersistentVolume that refers to a volume, whatever its name; "": none.
func (s *OrphanSearch) Holder(ctx context.Context, v lvm.Volume) (string, error) {
	s.names = map[string]string{}
	err := s.searchVolumes(ctx, []lvm.ManagedVolume{{Volume: v}})
	return s.names[v.UUID], err
}

// searchContents is searchVolumes for snapshots. It lists all contents, because a pre-provisioned one may lack the label of
// its node.
func (s *OrphanSearch) searchContents(ctx context.Context, suspects []lvm.ManagedVolume) error {
	if !slices.ContainsFunc(suspects, func(o lvm.ManagedVolume) bool { return o.Snapshot }) {
		return nil
	}
	return s.Client.EachContent(ctx, func(c *kubeclient.Content) {
		for _, o := range suspects {
			if o.Snapshot && kubeclient.HasSnapshot(c, o.ID) {
				s.names[o.UUID] = c.Name
			}
		}
	})
}

// A member of a group snapshot belongs to the content of that, too: it is there before the member's own content, and alone if it was made by hand. A
// node has the right to read such contents only with groupSnapshots.enabled. Without it nothing proves that a member is an orphan.

// searchGroups is searchContents for the contents of group snapshots.
func (s *OrphanSearch) searchGroups(ctx context.Context, suspects []lvm.ManagedVolume) error {
	members := slices.DeleteFunc(slices.Clone(suspects), func(o lvm.ManagedVolume) bool { return o.Of == lvm.ID{} })
	if len(members) == 0 {
		return nil
	}
	err := s.Client.EachGroupContent(ctx, func(c *kubeclient.GroupContent) {
		for _, o := range members {
			if kubeclient.HasGroup(c, o.Of) {
				s.groups[o.UUID] = c.Name
			}
		}
	})
	if !apierrors.IsForbidden(err) {
		return err
	}
	for _, o := range members {
		s.groups[o.UUID] = o.Of.LV // which no content has as its name
	}
	return nil
}

// hasGroupContent reads the content that searchGroups found.
func (s *OrphanSearch) hasGroupContent(ctx context.Context, o lvm.ManagedVolume) (bool, error) {
	name := s.groups[o.UUID]
	if name == "" {
		return false, nil
	}
	var c kubeclient.GroupContent
	there, err := kubeclient.Get(ctx, s.Client.GroupSnapshots, "volumegroupsnapshotcontents", "", name, &c)
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return there && kubeclient.HasGroup(&c, o.Of), err
}

// classify determines what happened to the claim of a volume without a PersistentVolume. A volume whose claim still waits
// for it is being created and is no orphan.
func (s *OrphanSearch) classify(ctx context.Context, o lvm.ManagedVolume) (kind report.Reason, why string, err error) {
	switch {
	case o.Snapshot && o.Claim != "":
		return s.classifyClone(ctx, o)
	case o.Snapshot:
		return report.ReasonUnreferenced, "no VolumeSnapshotContent refers to it", nil
	case o.Record != "": // it moves: its agents create its PersistentVolume again
		return "", "", nil
	}
	namespace, name := kubeclient.ClaimKey(o.Claim)
	if name == "" {
		return report.ReasonUnreferenced, "no PersistentVolume refers to it", nil
	}
	claim, err := s.Client.Claim(ctx, namespace, name)
	switch {
	case err != nil:
		return "", "", err
	case claim != nil && claim.Spec.VolumeName == "" && api.PrefixVolume+string(claim.UID) == o.Name:
		return "", "", nil
	case claim != nil && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != o.Name:
		return report.ReasonAbandoned, fmt.Sprintf("its claim now uses the volume %s", claim.Spec.VolumeName), nil
	}
	if _, there, err := s.lookUp(ctx, o); err != nil || there { // the object was created since the first search
		return "", "", err
	}
	return report.ReasonUnreferenced, "no PersistentVolume refers to it", nil
}

// classifyClone does the same for the snapshot from which a clone on another node is copied.
func (s *OrphanSearch) classifyClone(ctx context.Context, o lvm.ManagedVolume) (kind report.Reason, why string, err error) {
	namespace, name := kubeclient.ClaimKey(o.Claim)
	claim, err := s.Client.Claim(ctx, namespace, name)
	if err != nil || claim != nil && claim.Spec.VolumeName == "" && api.PrefixClone+string(claim.UID) == o.Name {
		return "", "", err
	}
	return report.ReasonUnreferenced, "the clone that it was taken for no longer waits; the driver removes it within a minute if it runs with moves (chart value move.enabled)", nil
}
