package apiproxy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

const provisioner = "volume.kubernetes.io/storage-provisioner"

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{}
	c.Namespace, c.Name = "ns", "data"
	c.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2", provisioner: api.DriverName}
	c.Spec.VolumeName = "pvc-1"
	change(c)
	return c
}

func TestClaimConcerns(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"bound elsewhere":             {func(*corev1.PersistentVolumeClaim) {}, false},
		"bound here":                  {func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationSelectedNode] = "node-1" }, true},
		"bound, no node":              {func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, false},
		"source of a clone elsewhere": {func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"x", api.FinalizerCloned} }, true},
		"waits, other node":           {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }, true},
		"waits, no node": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations = "", nil
		}, true},
		"waits for another driver": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations[provisioner] = "", "ebs.csi.aws.com"
		}, false},
		"waits for another driver, old annotation": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations = "", map[string]string{"volume.beta.kubernetes.io/storage-provisioner": "ebs.csi.aws.com"}
		}, false},
		"clone by another driver": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations[provisioner] = "", "ebs.csi.aws.com"
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "origin"}
		}, true},
		"restore by another driver, of another namespace": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations[provisioner] = "", "ebs.csi.aws.com"
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "snap", Namespace: new("other")}
		}, true},
		"restored by another driver": {func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[provisioner] = "ebs.csi.aws.com"
			c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "snap"}
		}, false},
	} {
		if got := claimConcerns(claim(test.change), "node-1", false); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
	if !claimConcerns(claim(func(*corev1.PersistentVolumeClaim) {}), "node-1", true) {
		t.Error("a claim does not concern the node of its volume if its annotation names another one")
	}
}

func volume(change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", Finalizers: []string{api.FinalizerProvisioner}}}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-2"}}},
	}}}}
	pv.Status.Phase = corev1.VolumeBound
	change(pv)
	return pv
}

func TestVolumeConcerns(t *testing.T) {
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*corev1.PersistentVolume)
		want   bool
	}{
		"bound elsewhere":    {func(*corev1.PersistentVolume) {}, false},
		"released elsewhere": {func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeReleased }, false},
		"failed elsewhere":   {func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeFailed }, false},
		"new elsewhere":      {func(pv *corev1.PersistentVolume) { pv.Status.Phase = "" }, true},
		"pending elsewhere":  {func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumePending }, true},
		"bound here": {func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node-1"}
		}, true},
		"parked here": {func(pv *corev1.PersistentVolume) {
			e := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions
			e[0].Values = []string{"node-1"}
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = append(e, corev1.NodeSelectorRequirement{Key: "nodelvm.io/moving", Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}})
		}, true},
		"one of several terms": {func(pv *corev1.PersistentVolume) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms = append(pv.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{})
		}, true},
		"no affinity":    {func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil }, true},
		"another driver": {func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com"; pv.Status.Phase = "" }, false},
		"no driver":      {func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }, false},
		"elsewhere, finalizer left after a change to Retain": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, true},
		"elsewhere, retained": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.Finalizers = corev1.PersistentVolumeReclaimRetain, nil
		}, false},
		"elsewhere, finalizer missing": {func(pv *corev1.PersistentVolume) { pv.Finalizers = nil }, true},
		"elsewhere, being deleted":     {func(pv *corev1.PersistentVolume) { pv.Finalizers, pv.DeletionTimestamp = nil, &now }, false},
	} {
		if got := volumeConcerns(volume(test.change), "node-1"); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
