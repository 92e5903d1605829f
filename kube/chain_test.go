package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEachLinkOfAChainCounts: a reference in one direction does not bind.
func TestEachLinkOfAChainCounts(t *testing.T) {
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
		"claim: another node": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{annSelectedNode: "node-2"}
		}, nil, `"node-2" is selected`},
		"claim: endless node": {func(_ *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{annSelectedNode: strings.Repeat("n", 1e6)}
		}, nil, "is selected"},
		"handle: none": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI.VolumeHandle = "" }, nil, "volume handle"},
		"handle: another kind's": {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) {
			pv.Spec.CSI.VolumeHandle = "vol-0a1b"
		}, nil, "volume handle"},
		"handle: another one's": {func(*corev1.PersistentVolume, *corev1.PersistentVolumeClaim) {}, []string{"pvc-data", "pvc-2"}, "PersistentVolume pvc-2"},
		"driver: another":       {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI.Driver = "ebs" }, nil, "not a volume of"},
		"driver: none":          {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.CSI = nil }, nil, "not a volume of"},
		"node: another":         {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { *pv = *volumeOn("node-2", "data") }, nil, "not a volume of"},
		"node: any":             {func(pv *corev1.PersistentVolume, _ *corev1.PersistentVolumeClaim) { pv.Spec.NodeAffinity = nil }, nil, "not a volume of"},
	} {
		pv, c := volumeOn("node-1", "data"), claim("data", "late", "pvc-data")
		c.Annotations = map[string]string{annSelectedNode: "node-1"}
		test.change(pv, c)
		switch err := chain(pv, c, "node-1", test.same...); {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says) || len(err.Error()) > 700):
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}

// TestEachLinkOfASnapshotsChainCounts checks the same for contents and snapshots.
func TestEachLinkOfASnapshotsChainCounts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(c *content, s *snapshot)
		says   string
	}{
		"all agree":                   {func(*content, *snapshot) {}, ""},
		"never taken":                 {func(c *content, _ *snapshot) { c.Status.SnapshotHandle = "" }, ""},
		"pre-provisioned":             {func(c *content, _ *snapshot) { c.Spec.Source.SnapshotHandle = testVG + "/s-1" }, ""},
		"content: no UID":             {func(c *content, _ *snapshot) { c.Spec.VolumeSnapshotRef.UID = "" }, "not bound"},
		"content: another UID":        {func(c *content, _ *snapshot) { c.Spec.VolumeSnapshotRef.UID = "old" }, "UID old"},
		"content: another namespace":  {func(c *content, _ *snapshot) { c.Spec.VolumeSnapshotRef.Namespace = "x" }, "x/nightly"},
		"content: another name":       {func(c *content, _ *snapshot) { c.Spec.VolumeSnapshotRef.Name = "x" }, "ns/x"},
		"content: no snapshot's kind": {func(c *content, _ *snapshot) { c.Spec.VolumeSnapshotRef.Kind = "Pod" }, `"Pod"`},
		"snapshot: another content":   {func(_ *content, s *snapshot) { s.Status.Content = "b" }, `"b"`},
		"snapshot: no content":        {func(_ *content, s *snapshot) { s.Status.Content = "" }, "is not bound"},
		"handle: another kind's":      {func(c *content, _ *snapshot) { c.Status.SnapshotHandle = "snap-1" }, "snapshot handle"},
		"handle: two":                 {func(c *content, _ *snapshot) { c.Spec.Source.SnapshotHandle = testVG + "/s-2" }, "two snapshot handles"},
		"driver: another":             {func(c *content, _ *snapshot) { c.Spec.Driver = "ebs" }, "not one of"},
		"node: another":               {func(c *content, _ *snapshot) { c.Labels[labelManagedBy] = "node-2" }, "not one of"},
		"node: none":                  {func(c *content, _ *snapshot) { c.Labels = nil }, "not one of"},
	} {
		c, s := contentOf("a", "uid", testVG+"/s-1"), &snapshot{}
		s.Namespace, s.Name, s.UID, s.Status.Content = "ns", "nightly", "uid", "a"
		test.change(c, s)
		switch err := snapshotChain(c, s, "node-1"); {
		case test.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}
