package kubeclient_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestChainNeedsReferencesInBothDirections: a reference in one direction does not bind.
func TestChainNeedsReferencesInBothDirections(t *testing.T) {
	for name, test := range map[string]struct {
		change func(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim)
		same   []string // other volumes with the handle
		says   string   // "": the chain is valid
	}{
		"all agree":                 {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, nil, ""},
		"its own handle":            {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, []string{"pvc-data"}, ""},
		"no node selected":          {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, nil, ""},
		"no kind":                   {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.Kind = "" }, nil, ""},
		"volume: no claim":          {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef = nil }, nil, "not bound"},
		"volume: no UID":            {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "" }, nil, "not bound"},
		"volume: another UID":       {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.UID = "old" }, nil, "UID old"},
		"volume: another namespace": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.Namespace = "x" }, nil, "x/data"},
		"volume: another name":      {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.Name = "x" }, nil, "ns/x"},
		"volume: no claim's kind":   {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.ClaimRef.Kind = "Pod" }, nil, `"Pod"`},
		"claim: another volume":     {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-2" }, nil, `"pvc-2"`},
		"claim: no volume":          {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "" }, nil, "is not bound"},
		"another node selected": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2"}
		}, nil, ""},
		"handle: endless": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.CSI.VolumeHandle = strings.Repeat("n", 1e6)
		}, nil, "volume handle"},
		"handle: none": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI.VolumeHandle = "" }, nil, "volume handle"},
		"handle: another kind's": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.CSI.VolumeHandle = "vol-0a1b"
		}, nil, "volume handle"},
		"handle: another one's": {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, []string{"pvc-data", "pvc-2"}, "PersistentVolume pvc-2"},
		"driver: another":       {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI.Driver = "ebs" }, nil, "not a volume of"},
		"driver: none":          {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI = nil }, nil, "not a volume of"},
		"node: another": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			*pv = *kubetest.VolumeOn("node-2", "data")
		}, nil, "not a volume of"},
		"node: any": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.NodeAffinity = nil }, nil, "not a volume of"},
	} {
		pv, c := kubetest.VolumeOn("node-1", "data"), kubetest.Claim("data", "late", "pvc-data")
		c.Annotations = map[string]string{api.AnnotationSelectedNode: "node-1"}
		test.change(pv, c)
		switch err := kubeclient.Chain(pv, c, "node-1", test.same...); {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 700):
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}

// TestSnapshotChainNeedsReferencesInBothDirections checks the same for contents and snapshots.
func TestSnapshotChainNeedsReferencesInBothDirections(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *kubeclient.Content, s *kubeclient.Snapshot)
		says   string
	}{
		"all agree":   {func(*kubeclient.Content, *kubeclient.Snapshot) {}, ""},
		"never taken": {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Status.SnapshotHandle = "" }, ""},
		"pre-provisioned": {func(c *kubeclient.Content, _ *kubeclient.Snapshot) {
			c.Spec.Source.SnapshotHandle = kubetest.TestVG + "/s-1"
		}, ""},
		"content: no UID":             {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.VolumeSnapshotRef.UID = "" }, "not bound"},
		"content: another UID":        {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.VolumeSnapshotRef.UID = "old" }, "UID old"},
		"content: another namespace":  {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.VolumeSnapshotRef.Namespace = "x" }, "x/nightly"},
		"content: another name":       {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.VolumeSnapshotRef.Name = "x" }, "ns/x"},
		"content: no snapshot's kind": {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.VolumeSnapshotRef.Kind = "Pod" }, `"Pod"`},
		"snapshot: another content":   {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.Status.Content = "b" }, `"b"`},
		"snapshot: no content":        {func(_ *kubeclient.Content, s *kubeclient.Snapshot) { s.Status.Content = "" }, "is not bound"},
		"handle: another kind's":      {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Status.SnapshotHandle = "snap-1" }, "snapshot handle"},
		"handle: two": {func(c *kubeclient.Content, _ *kubeclient.Snapshot) {
			c.Spec.Source.SnapshotHandle = kubetest.TestVG + "/s-2"
		}, "two snapshot handles"},
		"driver: another": {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Spec.Driver = "ebs" }, "not one of"},
		"node: another":   {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Labels[api.LabelManagedBy] = "node-2" }, "not one of"},
		"node: none":      {func(c *kubeclient.Content, _ *kubeclient.Snapshot) { c.Labels = nil }, "not one of"},
	} {
		c, s := kubetest.ContentOf("a", "uid", kubetest.TestVG+"/s-1"), &kubeclient.Snapshot{}
		s.Namespace, s.Name, s.UID, s.Status.Content = "ns", "nightly", "uid", "a"
		test.change(c, s)
		switch err := kubeclient.SnapshotChain(c, s, "node-1"); {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}
