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

	"github.com/nodelvm/nodelvm/lvm"
)

// OrphanKind says how it comes that nobody in this cluster has a volume.
type OrphanKind string

const (
	OrphanLost      OrphanKind = "unreferenced"  // no PersistentVolume or VolumeSnapshotContent refers to it
	OrphanAbandoned OrphanKind = "abandoned"     // its claim uses another volume, or was released
	OrphanForeign   OrphanKind = "other-cluster" // another cluster created it
)

// OrphanKinds are all of them.
var OrphanKinds = []OrphanKind{OrphanLost, OrphanAbandoned, OrphanForeign}

// Orphan is a volume or a snapshot on this node that nobody in this cluster has. It is never removed by this driver.
type Orphan struct {
	lvm.ManagedVolume
	Kind OrphanKind
	Why  string // a few words
}

// OrphanSearch compares what is on a node's disks with the objects of the cluster. It remembers what it has proved, so
// that all PersistentVolumes are listed at most once a day for the volumes that have none of their name.
type OrphanSearch struct {
	Client   *Client
	Holdings func(context.Context) (lvm.ManagedVolumes, error)
	Pause    time.Duration // between two requests

	rounds int
	names  map[string]string // UUID of a volume -> its PersistentVolume, where that has another name
	proved map[string]bool   // UUIDs of volumes and snapshots that were looked for everywhere, in vain
	pvs    []*corev1.PersistentVolume
}

// proofLasts is for how many searches a proof is good: for about a day, once an hour.
const proofLasts = 24

// Find answers the orphans, and every PersistentVolume of the node's volumes that it came across. The error is the disks'
// or the API server's: then nothing is proved.
func (s *OrphanSearch) Find(ctx context.Context) (orphans []Orphan, pvs []*corev1.PersistentVolume, err error) {
	if s.rounds%proofLasts == 0 {
		s.names, s.proved = map[string]string{}, map[string]bool{}
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
			orphans = append(orphans, Orphan{o, OrphanAbandoned, "its claim was released, and its PersistentVolume is retained"})
		case o.Foreign:
			orphans = append(orphans, Orphan{o, OrphanForeign, fmt.Sprintf("created by the cluster %q", o.Cluster)})
		case !there:
			suspects = append(suspects, o)
		}
	}
	rest, err := s.prove(ctx, suspects)
	return append(orphans, rest...), s.pvs, err
}

// lookUp looks for the object that has the name of the volume, as csi-provisioner and csi-snapshotter name it.
func (s *OrphanSearch) lookUp(ctx context.Context, o lvm.ManagedVolume) (abandoned, there bool, err error) {
	if o.Foreign {
		return false, false, nil
	}
	sleep(ctx, s.Pause)
	if o.Snapshot {
		there, err = s.hasContent(ctx, o)
		return false, there, err
	}
	pv, err := s.Client.volume(ctx, cmp.Or(s.names[o.UUID], o.Name))
	if err != nil || pv == nil || !holds(pv, o) {
		return false, false, err
	}
	s.pvs = append(s.pvs, pv)
	return isAbandoned(pv), true, nil
}

// isAbandoned tells whether a PersistentVolume is what a released claim has left. One that an admin has bound again is not,
// although it still bears the note.
func isAbandoned(pv *corev1.PersistentVolume) bool {
	return pv.Annotations[annAbandoned] != "" && isReleased(pv)
}

// holds tells whether a PersistentVolume stands for the volume.
func holds(pv *corev1.PersistentVolume, o lvm.ManagedVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == DriverName && pv.Spec.CSI.VolumeHandle == o.ID.String()
}

func (s *OrphanSearch) hasContent(ctx context.Context, o lvm.ManagedVolume) (bool, error) {
	uid := strings.TrimPrefix(o.Name, "snapshot-")
	var c content
	there, err := get(ctx, s.Client.snapshots, "volumesnapshotcontents", "", "snapcontent-"+uid, &c)
	return there && standsFor(&c, o), err
}

// standsFor tells whether a content stands for a snapshot: it has its handle or, as long as it has none, it is the one that the
// snapshot is being taken for.
func standsFor(c *content, o lvm.ManagedVolume) bool {
	handle := o.ID.String()
	beingTaken := c.Status.SnapshotHandle == "" && c.Spec.Source.SnapshotHandle == "" && "snapshot-"+string(c.Spec.VolumeSnapshotRef.UID) == o.Name
	return c.Spec.Driver == DriverName && (c.Status.SnapshotHandle == handle || c.Spec.Source.SnapshotHandle == handle || beingTaken)
}

// prove keeps of the suspects those that no object of any name stands for, and that are not just being made or removed.
func (s *OrphanSearch) prove(ctx context.Context, suspects []lvm.ManagedVolume) ([]Orphan, error) {
	for _, o := range suspects {
		delete(s.names, o.UUID)
	}
	if slices.ContainsFunc(suspects, func(o lvm.ManagedVolume) bool { return !s.proved[o.UUID] }) {
		if err := s.searchVolumes(ctx, suspects); err != nil {
			return nil, err
		}
		if err := s.searchContents(ctx, suspects); err != nil {
			return nil, err
		}
	}
	now, err := s.Holdings(ctx) // what was deleted meanwhile is no orphan
	if err != nil {
		return nil, err
	}
	var orphans []Orphan
	for _, o := range suspects {
		still := slices.ContainsFunc(now.Owned, func(n lvm.ManagedVolume) bool { return n.UUID == o.UUID })
		if !still || s.names[o.UUID] != "" {
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

// searchVolumes looks through all PersistentVolumes for those of the suspects.
func (s *OrphanSearch) searchVolumes(ctx context.Context, suspects []lvm.ManagedVolume) error {
	return s.Client.eachVolume(ctx, func(pv *corev1.PersistentVolume) {
		for _, o := range suspects {
			if holds(pv, o) {
				s.names[o.UUID] = pv.Name
				s.pvs = append(s.pvs, pv)
			}
		}
	})
}

// Holder names the PersistentVolume that stands for a volume, whatever its name; "": there is none.
func (s *OrphanSearch) Holder(ctx context.Context, v lvm.Volume) (string, error) {
	s.names = map[string]string{}
	err := s.searchVolumes(ctx, []lvm.ManagedVolume{{Volume: v}})
	return s.names[v.UUID], err
}

// searchContents does what searchVolumes does for snapshots. One that was made by hand may lack the label of its node.
func (s *OrphanSearch) searchContents(ctx context.Context, suspects []lvm.ManagedVolume) error {
	if !slices.ContainsFunc(suspects, func(o lvm.ManagedVolume) bool { return o.Snapshot }) {
		return nil
	}
	for next := ""; ; {
		var page contentList
		err := s.Client.snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "500").Param("continue", next).Do(ctx).Into(&page)
		if apierrors.IsNotFound(err) {
			return nil // this cluster has no snapshots
		}
		if err != nil {
			return fmt.Errorf("list the VolumeSnapshotContents: %w", err)
		}
		for i := range page.Items {
			for _, o := range suspects {
				if o.Snapshot && standsFor(&page.Items[i], o) {
					s.names[o.UUID] = page.Items[i].Name
				}
			}
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}

// classify tells what became of the claim of a volume without a PersistentVolume. One whose claim still waits for it is
// being made: it is none.
func (s *OrphanSearch) classify(ctx context.Context, o lvm.ManagedVolume) (kind OrphanKind, why string, err error) {
	if o.Snapshot {
		return OrphanLost, "no VolumeSnapshotContent refers to it", nil
	}
	namespace, name := claimKey(o.Claim)
	if name == "" {
		return OrphanLost, "no PersistentVolume refers to it", nil
	}
	claim, err := s.Client.claim(ctx, namespace, name)
	switch {
	case err != nil:
		return "", "", err
	case claim != nil && claim.Spec.VolumeName == "" && "pvc-"+string(claim.UID) == o.Name:
		return "", "", nil
	case claim != nil && claim.Spec.VolumeName != "" && claim.Spec.VolumeName != o.Name:
		return OrphanAbandoned, fmt.Sprintf("its claim now uses the volume %s", claim.Spec.VolumeName), nil
	}
	if _, there, err := s.lookUp(ctx, o); err != nil || there { // it has come since it was looked for
		return "", "", err
	}
	return OrphanLost, "no PersistentVolume refers to it", nil
}
