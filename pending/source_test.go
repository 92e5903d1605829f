package pending

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

// managed is a claim whose creator set these fields.
func managed(fields string) corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:spec": {"f:dataSourceRef": {}}}`)},
		{Manager: "empty"}, {Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(fields)},
	}}}
}

func TestLostSource(t *testing.T) {
	const elsewhere = `{"f:spec": {"f:accessModes": {}, "f:dataSourceRef": {".": {}, "f:kind": {}, "f:name": {}, "f:namespace": {}}}}`
	for name, test := range map[string]struct {
		fields string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"another namespace":                  {elsewhere, func(*corev1.PersistentVolumeClaim) {}, true},
		"a kind that dataSource cannot name": {`{"f:spec": {"f:dataSource": {}}}`, func(*corev1.PersistentVolumeClaim) {}, true},
		"the source is there": {elsewhere, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "VolumeSnapshot", Name: "s"}
		}, false},
		"only the older field":    {elsewhere, func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }, false},
		"it has a volume":         {elsewhere, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-1" }, false},
		"nobody asked for data":   {`{"f:spec": {"f:resources": {}}}`, func(*corev1.PersistentVolumeClaim) {}, false},
		"not a field of the spec": {`{"f:metadata": {"f:dataSourceRef": {}}}`, func(*corev1.PersistentVolumeClaim) {}, false},
		"no JSON":                 {`{"f:spec"`, func(*corev1.PersistentVolumeClaim) {}, false},
		"another type":            {`{"f:spec": ["f:dataSourceRef"]}`, func(*corev1.PersistentVolumeClaim) {}, false},
		"nothing":                 {"", func(*corev1.PersistentVolumeClaim) {}, false},
		"noted before webhooks":   {elsewhere, noted(40 * time.Second), true},
		"of a claim that was backed up a moment ago": {elsewhere, noted(2 * time.Minute), false},
		"of a claim that was backed up and restored": {elsewhere, noted(time.Hour), false},
	} {
		claim := managed(test.fields)
		test.change(&claim)
		if got := LostSource(&claim); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if LostSource(&corev1.PersistentVolumeClaim{}) {
		t.Error("a claim without managed fields has lost its source")
	}
}

// noted says how long before the claim its fields were noted.
func noted(before time.Duration) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.CreationTimestamp = metav1.Now()
		for i := range c.ManagedFields {
			c.ManagedFields[i].Time = ptr.To(metav1.NewTime(c.CreationTimestamp.Add(-before)))
		}
	}
}

// TestWhoCreatesTheVolume: why says of a claim, for which csi-provisioner creates no volume, what it waits for.
func TestWhoCreatesTheVolume(t *testing.T) {
	ref := func(group, kind, namespace string) func(f *Facts) {
		return func(f *Facts) {
			f.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kind, Name: "src"}
			if group != "" {
				f.Claim.Spec.DataSourceRef.APIGroup = &group
			}
			if namespace != "" {
				f.Claim.Spec.DataSourceRef.Namespace = &namespace
			}
		}
	}
	for name, test := range map[string]struct {
		change   func(f *Facts)
		byOthers bool
		want     []string
	}{
		"csi-provisioner":       {func(*Facts) {}, false, []string{"why no node is selected is unknown"}},
		"of a snapshot":         {ref(api.SnapshotGroup, "VolumeSnapshot", ""), false, []string{"why no node is selected is unknown"}},
		"of a claim":            {ref("", "PersistentVolumeClaim", "shop"), false, []string{"why no node is selected is unknown"}},
		"a volume populator":    {ref("example.com", "Backup", ""), true, []string{"a volume populator has to create the volume, from Backup.example.com src: csi-provisioner creates none", "install it"}},
		"a populator of claims": {ref("example.com", "PersistentVolumeClaim", ""), true, []string{"from PersistentVolumeClaim.example.com src"}},
		"another namespace's": {ref(api.SnapshotGroup, "VolumeSnapshot", "other"), true,
			[]string{"VolumeSnapshot.snapshot.storage.k8s.io src, is in the namespace other: nodelvm copies only within a namespace", "create the claim in the namespace other"}},
		"a selector": {func(f *Facts) {
			f.Claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "old"}}
		}, true, []string{"the claim has a selector (disk=old): csi-provisioner creates no volume for it", "create the claim again without a selector"}},
		"a source that was dropped": {func(f *Facts) {
			f.Claim.ManagedFields = managed(`{"f:spec": {"f:dataSourceRef": {}}}`).ManagedFields
		}, false, []string{"the API server dropped, so its volume would be empty", "fix: delete the claim, and create it in the namespace of its source"}},
	} {
		f := twoNodes()
		test.change(&f)
		if got := IsBoundByOthers(&f.Claim); got != test.byOthers {
			t.Errorf("%s: others bind the claim: %t", name, got)
		}
		expectTexts(t, name, f, test.want)
	}
}
