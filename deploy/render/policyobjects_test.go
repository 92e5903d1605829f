package main

import (
	"slices"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The objects that TestNodeRestriction has written: one of each kind, and variations of it.

const (
	reminded   = "nodelvm.io/provisioning-retried-at"
	lostSince  = "nodelvm.io/lost-since"
	groupLost  = "nodelvm.io/volume-group-lost-since"
	claimUID   = "0c2f5a3e-8f5d-4c8e-9d0a-1b2c3d4e5f60"
	volumeName = "pvc-" + claimUID
	groupUUID  = "zMcZgk-9mXf-8nKJ-5S1z-uDPo-VH5c-s4Gjrb"
	otherUUID  = "Tq0cYw-aaaa-bbbb-cccc-dddd-eeee-ffffff"
	handle     = groupUUID + "/" + volumeName
	podUID     = "9b1d0a52-0000-4000-8000-000000000001"
)

// volume is a PersistentVolume as csi-provisioner creates it, once the API server has added its finalizer.
func volume(nodes ...string) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{
		Name: volumeName,
		Annotations: map[string]string{
			provisionedBy: "nodelvm.io",
			"volume.kubernetes.io/provisioner-deletion-secret-name":      "",
			"volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
		},
		Finalizers: []string{"kubernetes.io/pv-protection"},
	}}
	mode := core.PersistentVolumeFilesystem
	pv.Spec = core.PersistentVolumeSpec{
		Capacity:                      core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")},
		AccessModes:                   []core.PersistentVolumeAccessMode{core.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
		StorageClassName:              "local",
		MountOptions:                  []string{"noatime"},
		VolumeMode:                    &mode,
		ClaimRef: &core.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "demo", Name: "data", UID: claimUID, ResourceVersion: "7",
		},
	}
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "nodelvm.io", VolumeHandle: handle, FSType: "xfs", VolumeAttributes: map[string]string{
		"storage.kubernetes.io/csiProvisionerIdentity": "1-2-nodelvm.io-node-1",
		"nodelvm.io/lv-uuid":                           "u", "nodelvm.io/volume-group": "vg", "nodelvm.io/source": "a/b", "nodelvm.io/mkfs-options": "-K",
	}}
	if len(nodes) > 0 {
		term := core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: topologyKey, Operator: core.NodeSelectorOpIn, Values: nodes},
		}}
		pv.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{term}}}
	}
	return pv
}

// but is node-1's volume with a change.
func but(change func(*core.PersistentVolume)) *core.PersistentVolume {
	pv := volume("node-1")
	change(pv)
	return pv
}

// losing notes a loss.
func losing(annotation string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Annotations[annotation] = "2026-01-01T00:00:00Z"
	return pv
}

// released is a volume whose claim is gone.
func released(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Status.Phase = core.VolumeReleased
	return pv
}

func retained(node string) *core.PersistentVolume {
	pv := volume(node)
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
	return pv
}

// held adds csi-provisioner's finalizer.
func held(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Finalizers = append(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer")
	return pv
}

// unguarded lacks Kubernetes' own finalizer.
func unguarded(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Finalizers = slices.DeleteFunc(pv.Finalizers, func(f string) bool { return f == "kubernetes.io/pv-protection" })
	return pv
}

func labelled(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Labels = map[string]string{"a": "b"}
	return pv
}

func of(driver string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.CSI.Driver = driver
	if driver == "" {
		pv.Spec.CSI = nil
	}
	return pv
}

func either(a, b *core.PersistentVolume) *core.PersistentVolume {
	terms := &a.Spec.NodeAffinity.Required.NodeSelectorTerms
	*terms = append(*terms, b.Spec.NodeAffinity.Required.NodeSelectorTerms...)
	return a
}

func operator(op core.NodeSelectorOperator, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Operator = op
	return pv
}

func sized(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.Capacity = core.ResourceList{core.ResourceStorage: resource.MustParse("2Gi")}
	return pv
}

func snapshot() *snapshots.VolumeSnapshot {
	source := "data"
	s := &snapshots.VolumeSnapshot{ObjectMeta: meta.ObjectMeta{Name: "snap", Namespace: "demo"}}
	s.Spec.Source.PersistentVolumeClaimName = &source
	return s
}

func protected(s *snapshots.VolumeSnapshot) *snapshots.VolumeSnapshot {
	s.Finalizers = append(s.Finalizers, restoring)
	return s
}

func guardedSnapshot() *snapshots.VolumeSnapshot {
	s := snapshot()
	s.Finalizers = []string{"snapshot.storage.kubernetes.io/volumesnapshot-bound-protection"}
	return s
}

func elsewhere(s *snapshots.VolumeSnapshot) *snapshots.VolumeSnapshot {
	other := "other"
	s.Spec.Source.PersistentVolumeClaimName = &other
	return s
}

// content is a snapshot's content that the snapshot controller has given to a node.
func content(node string) *snapshots.VolumeSnapshotContent {
	c, source := &snapshots.VolumeSnapshotContent{ObjectMeta: meta.ObjectMeta{Name: "snapcontent-1"}}, handle
	if node != "" {
		c.Labels = map[string]string{managedBy: node}
	}
	c.Spec.Driver, c.Spec.Source.VolumeHandle = "nodelvm.io", &source
	return c
}

// sourced replaces the handle of the content's volume.
func sourced(volume string, c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Spec.Source.VolumeHandle = &volume
	return c
}

// byHand is a pre-provisioned content for an existing snapshot.
func byHand(node string) *snapshots.VolumeSnapshotContent {
	c, snapshot := content(node), groupUUID+"/some-snapshot"
	c.Spec.Source = snapshots.VolumeSnapshotContentSource{SnapshotHandle: &snapshot}
	c.Spec.DeletionPolicy = snapshots.VolumeSnapshotContentRetain
	return c
}

func deleting(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Spec.DeletionPolicy = snapshots.VolumeSnapshotContentDelete
	return c
}

func tagged(key, value string, c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[key] = value
	return c
}

func noted(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Annotations = map[string]string{"a": "b"}
	return c
}

func foreign(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Spec.Driver = "other.io"
	return c
}

func marked(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Finalizers = []string{"snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"}
	return c
}

// ready notes a snapshot, and its handle.
func ready(handle string, c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	yes := true
	c.Status = &snapshots.VolumeSnapshotContentStatus{ReadyToUse: &yes}
	if handle != "" {
		c.Status.SnapshotHandle = &handle
	}
	return c
}

// creating is how csi-snapshotter marks a content while it makes the snapshot.
func creating(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	c.Annotations = map[string]string{"snapshot.storage.kubernetes.io/volumesnapshot-being-created": "yes"}
	return c
}

// capacity is as csi-provisioner writes it.
func capacity(node string) *storage.CSIStorageCapacity {
	yes := true
	return &storage.CSIStorageCapacity{
		ObjectMeta: meta.ObjectMeta{
			GenerateName: "csisc-", Namespace: namespace,
			Labels: map[string]string{
				"csi.storage.k8s.io/drivername": "nodelvm.io", "csi.storage.k8s.io/managed-by": "external-provisioner-" + node,
			},
			OwnerReferences: []meta.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "nodelvm-x", UID: podUID, Controller: &yes}},
		},
		StorageClassName: "local",
		NodeTopology:     &meta.LabelSelector{MatchLabels: map[string]string{topologyKey: node}},
		Capacity:         resource.NewQuantity(1<<30, resource.BinarySI),
	}
}

// published is node-1's capacity with a change.
func published(change func(*storage.CSIStorageCapacity)) *storage.CSIStorageCapacity {
	c := capacity("node-1")
	change(c)
	return c
}

// ofEarlierPod is capacity that the pod before this one published, as it is and with this one's pod beside the other.
func ofEarlierPod(also ...meta.OwnerReference) *storage.CSIStorageCapacity {
	return published(func(c *storage.CSIStorageCapacity) {
		c.OwnerReferences[0].UID = "gone"
		c.OwnerReferences = append(c.OwnerReferences, also...)
	})
}

func event(component string) *core.Event {
	return &core.Event{
		ObjectMeta: meta.ObjectMeta{Name: "data.1", Namespace: "demo"}, Source: core.EventSource{Component: component}, Reason: "Provisioning",
		InvolvedObject: core.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "demo", Name: "data"},
	}
}

func everywhere() *storage.CSIStorageCapacity {
	c := capacity("node-1")
	c.NodeTopology = &meta.LabelSelector{}
	return c
}
