package main

import (
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The objects that TestNodeRestriction has written: one of each kind, and variations of it.

func volume(nodes ...string) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: meta.ObjectMeta{Name: "pvc-1"}}
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimDelete
	pv.Spec.CSI = &core.CSIPersistentVolumeSource{Driver: "nodelvm.io", VolumeHandle: "a/b"}
	if len(nodes) > 0 {
		term := core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: topologyKey, Operator: core.NodeSelectorOpIn, Values: nodes},
		}}
		pv.Spec.NodeAffinity = &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{term}}}
	}
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

// guarded adds Kubernetes' own finalizer.
func guarded(pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-protection")
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

func claim(node string) *core.PersistentVolumeClaim {
	pvc := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "data", Namespace: "demo"}}
	if node != "" {
		pvc.Annotations = map[string]string{selectedNode: node}
	}
	return pvc
}

func bound(node string) *core.PersistentVolumeClaim {
	pvc := claim(node)
	pvc.Spec.VolumeName, pvc.Status.Phase = "pvc-1", core.ClaimBound
	return pvc
}

func lost(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.Phase = core.ClaimLost
	return pvc
}

// growing notes an expansion.
func growing(pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.AllocatedResources = core.ResourceList{core.ResourceStorage: resource.MustParse("2Gi")}
	pvc.Status.AllocatedResourceStatuses = map[core.ResourceName]core.ClaimResourceStatus{
		core.ResourceStorage: core.PersistentVolumeClaimControllerResizeInProgress,
	}
	pvc.Status.Conditions = []core.PersistentVolumeClaimCondition{{Type: core.PersistentVolumeClaimResizing, Status: core.ConditionTrue}}
	return pvc
}

// copying gives the claim a source.
func copying(kind string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Spec.DataSourceRef = &core.TypedObjectReference{Kind: kind, Name: "source"}
	return pvc
}

func annotated(key, value string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	if pvc.Annotations == nil {
		pvc.Annotations = map[string]string{}
	}
	pvc.Annotations[key] = value
	return pvc
}

func finalized(finalizer string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Finalizers = append(pvc.Finalizers, finalizer)
	return pvc
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
	c := &snapshots.VolumeSnapshotContent{ObjectMeta: meta.ObjectMeta{Name: "snapcontent-1"}}
	if node != "" {
		c.Labels = map[string]string{managedBy: node}
	}
	c.Spec.Driver = "nodelvm.io"
	return c
}

// byHand is a content that somebody made for a snapshot that is there already.
func byHand(node string) *snapshots.VolumeSnapshotContent {
	c, handle := content(node), "a/b"
	c.Spec.Source.SnapshotHandle, c.Spec.DeletionPolicy = &handle, snapshots.VolumeSnapshotContentRetain
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

func ready(c *snapshots.VolumeSnapshotContent) *snapshots.VolumeSnapshotContent {
	yes := true
	c.Status = &snapshots.VolumeSnapshotContentStatus{ReadyToUse: &yes}
	return c
}

func capacity(node string) *storage.CSIStorageCapacity {
	return &storage.CSIStorageCapacity{
		ObjectMeta:       meta.ObjectMeta{GenerateName: "csisc-", Namespace: namespace},
		StorageClassName: "local",
		NodeTopology:     &meta.LabelSelector{MatchLabels: map[string]string{topologyKey: node}},
	}
}

func everywhere() *storage.CSIStorageCapacity {
	c := capacity("node-1")
	c.NodeTopology = &meta.LabelSelector{}
	return c
}
