package cluster

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// identity is the metadata that client-go's informers read of an object.
type identity struct{ Namespace, Name, version string }

// GetObjectMeta implements metav1.ObjectMetaAccessor.
func (i *identity) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name, ResourceVersion: i.version}
}

func identityOf(o metav1.Object) identity {
	return identity{shared(o.GetNamespace()), o.GetName(), o.GetResourceVersion()}
}

// Key is namespace/name or, without a namespace, the name.
func (i *identity) Key() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

// shared returns one copy of a text that many objects have.
func shared(text string) string { return unique.Make(text).Value() }

// Volume has the facts about a PersistentVolume.
type Volume struct {
	identity
	Node     string // "": it is not a volume of this driver on one node, and has no other facts
	Handle   string
	Claim    string // namespace/name in its claimRef
	Class    string
	Size     lvm.Bytes
	Deleting bool
	Noted    bool // it has an annotation of a loss
}

// Claim has the facts about a PersistentVolumeClaim.
type Claim struct {
	identity
	SelectedNode string                        // of a claim without a volume
	Waiting      *corev1.PersistentVolumeClaim // what explains why the claim waits, if it waits for a volume of a class
}

// Capacity has the facts about a CSIStorageCapacity of this driver.
type Capacity struct {
	identity
	Node, Class string                        // Node: whose capacity csi-provisioner published; "": another component's
	Size, Most  *resource.Quantity            // of all volumes together, and of one; nil: not published
	Group       *storagev1.CSIStorageCapacity // the object, if it is of a node group
}

// Content has the facts about a VolumeSnapshotContent or a VolumeGroupSnapshotContent.
type Content struct {
	identity
	Node  string // "": it is not a content of this driver on one node
	Noted bool   // it has an annotation of a loss
}

// factsOf is the informers' transform. Of nodes and classes it returns a smaller object of the same type.
func factsOf(o any) (any, error) {
	switch o := o.(type) {
	case *corev1.Node:
		return nodeOf(o), nil
	case *corev1.PersistentVolume:
		return VolumeOf(o), nil
	case *corev1.PersistentVolumeClaim:
		return ClaimOf(o), nil
	case *storagev1.StorageClass:
		return classOf(o), nil
	case *storagev1.CSIStorageCapacity:
		return CapacityOf(o), nil
	case *kubeclient.Content:
		return ContentOf(o), nil
	case *kubeclient.GroupContent:
		return contentOf(o, o.Spec.Driver), nil
	}
	return o, nil // facts already
}

func nodeOf(n *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, CreationTimestamp: n.CreationTimestamp, Labels: n.Labels},
		Spec:       corev1.NodeSpec{Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable},
	}
	kept.Status.NodeInfo.SystemUUID = n.Status.NodeInfo.SystemUUID
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Message: c.Message}}
		}
	}
	return kept
}

// LossNotes are the annotations because of which a volume is checked although its node exists.
var LossNotes = []string{api.AnnotationLostSince, api.AnnotationVolumeGroupLostSince, api.AnnotationReclaimPolicy}

// VolumeOf returns the facts about a PersistentVolume.
func VolumeOf(pv *corev1.PersistentVolume) *Volume {
	v := &Volume{identity: identityOf(pv), Node: shared(pending.NodeOf(pv))}
	if v.Node == "" {
		return v
	}
	size := pv.Spec.Capacity[corev1.ResourceStorage]
	v.Handle, v.Class, v.Size = pv.Spec.CSI.VolumeHandle, shared(pv.Spec.StorageClassName), lvm.Bytes(size.Value())
	v.Deleting, v.Noted = pv.DeletionTimestamp != nil, len(kubeclient.Only(pv.Annotations, LossNotes...)) > 0
	if ref := pv.Spec.ClaimRef; ref != nil {
		v.Claim = ref.Namespace + "/" + ref.Name
	}
	return v
}

// ClaimOf returns the facts about a claim: its names alone, if it is too large for csi-provisioner.
func ClaimOf(c *corev1.PersistentVolumeClaim) *Claim {
	kept := &Claim{identity: identityOf(c)}
	if c.Spec.VolumeName != "" || c.Size() > api.MaxObject {
		return kept
	}
	kept.SelectedNode = shared(pending.NodeOfClaim(c, nil))
	if c.DeletionTimestamp == nil && kubeclient.ClassOf(c) != "" {
		kept.Waiting = &corev1.PersistentVolumeClaim{ObjectMeta: kubeclient.Names(c), Spec: c.Spec, Status: c.Status}
		kept.Waiting.CreationTimestamp = c.CreationTimestamp
		kept.Waiting.Annotations = kubeclient.Only(c.Annotations, api.AnnotationSelectedNode, api.AnnotationStorageClassBeta)
	}
	return kept
}

// classOf keeps little of another provisioner's class.
func classOf(c *storagev1.StorageClass) *storagev1.StorageClass {
	if c.Provisioner != api.DriverName {
		return &storagev1.StorageClass{ObjectMeta: kubeclient.Names(c), Provisioner: c.Provisioner}
	}
	c.ManagedFields = nil
	return c
}

// CapacityOf returns the facts about a CSIStorageCapacity.
func CapacityOf(c *storagev1.CSIStorageCapacity) *Capacity {
	kept := &Capacity{identity: identityOf(c), Class: shared(c.StorageClassName), Size: c.Capacity, Most: c.MaximumVolumeSize}
	if c.Labels[api.LabelNodeGroup] != "" {
		c.ManagedFields = nil
		kept.Group = c
	} else if t := c.NodeTopology; t != nil && len(t.MatchLabels) == 1 && len(t.MatchExpressions) == 0 {
		kept.Node = shared(t.MatchLabels[api.TopologyKey])
	}
	return kept
}

// ContentOf returns the facts about a content.
func ContentOf(c *kubeclient.Content) *Content { return contentOf(c, c.Spec.Driver) }

func contentOf(c metav1.Object, driver string) *Content {
	kept := &Content{identity: identityOf(c)}
	if driver == api.DriverName {
		kept.Node, kept.Noted = shared(c.GetLabels()[api.LabelManagedBy]), c.GetAnnotations()[api.AnnotationLostSince] != ""
	}
	return kept
}
