package janitor

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// This file holds what a janitor's watches keep in memory.

func keepNode(o any) (lossKind, bool) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return lossNone, false
	}
	return LossOf(node.Name, node, "").kind, true
}

func stripNode(o any) any {
	if node, ok := o.(*corev1.Node); ok {
		return &corev1.Node{ObjectMeta: kubeclient.Names(node), Spec: corev1.NodeSpec{Taints: node.Spec.Taints}, Status: corev1.NodeStatus{Conditions: node.Status.Conditions}}
	}
	return o
}

// volumeNotes are the annotations because of which the janitor checks a volume although its node exists.
var volumeNotes = []string{api.AnnotationLostSince, api.AnnotationVolumeGroupLostSince, api.AnnotationReclaimPolicy}

func KeepVolume(o any) (place, bool) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return place{}, false
	}
	node := pending.NodeOf(pv)
	if node == "" {
		return place{}, false
	}
	p := place{node: node, handle: pv.Spec.CSI.VolumeHandle, alone: len(kubeclient.Only(pv.Annotations, volumeNotes...)) == 0}
	if ref := pv.Spec.ClaimRef; ref != nil {
		p.claim = ref.Namespace + "/" + ref.Name
	}
	return p, true
}

func StripVolume(o any) any {
	if pv, ok := o.(*corev1.PersistentVolume); ok {
		kept := &corev1.PersistentVolume{ObjectMeta: kubeclient.Names(pv)}
		if pending.NodeOf(pv) != "" {
			kept.Spec.CSI, kept.Spec.NodeAffinity = pv.Spec.CSI, pv.Spec.NodeAffinity
			kept.Annotations = kubeclient.Only(pv.Annotations, volumeNotes...)
			if ref := pv.Spec.ClaimRef; ref != nil {
				kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name}
			}
		}
		return kept
	}
	return o
}

func KeepSelecting(o any) (place, bool) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" {
		return place{}, false
	}
	p := place{node: pending.NodeOfClaim(claim, nil), alone: true}
	return p, p.node != ""
}

func StripSelecting(o any) any {
	if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
		kept := &corev1.PersistentVolumeClaim{ObjectMeta: kubeclient.Names(claim)}
		kept.Annotations, kept.Spec.VolumeName = kubeclient.Only(claim.Annotations, api.AnnotationSelectedNode), claim.Spec.VolumeName
		return kept
	}
	return o
}

func KeepContent(o any) (place, bool) {
	c, ok := o.(*kubeclient.Content)
	if !ok || c.Spec.Driver != api.DriverName {
		return place{}, false
	}
	p := place{node: c.Labels[api.LabelManagedBy], alone: c.Annotations[api.AnnotationLostSince] == ""}
	return p, p.node != ""
}

func StripContent(o any) any {
	if c, ok := o.(*kubeclient.Content); ok {
		kept := &kubeclient.Content{ObjectMeta: kubeclient.Names(c)}
		kept.Spec.Driver = c.Spec.Driver
		kept.Labels, kept.Annotations = kubeclient.Only(c.Labels, api.LabelManagedBy), kubeclient.Only(c.Annotations, api.AnnotationLostSince)
		return kept
	}
	return o
}
