package kube

import (
	corev1 "k8s.io/api/core/v1"
)

// This file holds what a janitor's watches keep in memory.

func keepNode(o any) (lossKind, bool) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return lossNone, false
	}
	return lossOf(node.Name, node, "").kind, true
}

func stripNode(o any) any {
	if node, ok := o.(*corev1.Node); ok {
		return &corev1.Node{ObjectMeta: names(node), Spec: corev1.NodeSpec{Taints: node.Spec.Taints}, Status: corev1.NodeStatus{Conditions: node.Status.Conditions}}
	}
	return o
}

// volumeNotes are the annotations that give the janitor work on a volume although its node exists.
var volumeNotes = []string{annLostSince, annGroupLost, annPolicy}

func keepVolume(o any) (place, bool) {
	pv, ok := o.(*corev1.PersistentVolume)
	if !ok {
		return place{}, false
	}
	node := nodeOf(pv)
	if node == "" {
		return place{}, false
	}
	return place{node: node, handle: pv.Spec.CSI.VolumeHandle, alone: len(only(pv.Annotations, volumeNotes...)) == 0}, true
}

func stripVolume(o any) any {
	if pv, ok := o.(*corev1.PersistentVolume); ok {
		kept := &corev1.PersistentVolume{ObjectMeta: names(pv)}
		if nodeOf(pv) != "" {
			kept.Spec.CSI, kept.Spec.NodeAffinity = pv.Spec.CSI, pv.Spec.NodeAffinity
			kept.Annotations = only(pv.Annotations, volumeNotes...)
		}
		return kept
	}
	return o
}

func keepSelecting(o any) (place, bool) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok || claim.Spec.VolumeName != "" {
		return place{}, false
	}
	p := place{node: claim.Annotations[annSelectedNode], alone: true}
	return p, p.node != ""
}

func stripSelecting(o any) any {
	if claim, ok := o.(*corev1.PersistentVolumeClaim); ok {
		kept := &corev1.PersistentVolumeClaim{ObjectMeta: names(claim)}
		kept.Annotations, kept.Spec.VolumeName = only(claim.Annotations, annSelectedNode), claim.Spec.VolumeName
		return kept
	}
	return o
}

func keepContent(o any) (place, bool) {
	c, ok := o.(*content)
	if !ok || c.Spec.Driver != DriverName {
		return place{}, false
	}
	p := place{node: c.Labels[labelManagedBy], alone: c.Annotations[annLostSince] == ""}
	return p, p.node != ""
}

func stripContent(o any) any {
	if c, ok := o.(*content); ok {
		kept := &content{ObjectMeta: names(c)}
		kept.Spec.Driver = c.Spec.Driver
		kept.Labels, kept.Annotations = only(c.Labels, labelManagedBy), only(c.Annotations, annLostSince)
		return kept
	}
	return o
}
