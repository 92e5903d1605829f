package pending

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

// TestIsPlacedByScheduler: a restore of a class that asks for full copies is on any node, and nothing else with a source.
func TestIsPlacedByScheduler(t *testing.T) {
	const group = api.SnapshotGroup
	for name, test := range map[string]struct {
		ref   *corev1.TypedObjectReference
		value string // of the parameter
		modes []corev1.PersistentVolumeAccessMode
		want  bool
	}{
		"a restore":                     {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, "true", nil, true},
		"writable for one node":         {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, "true", []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, true},
		"a read-only copy":              {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, "true", []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, false},
		"a class without the parameter": {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, "", nil, false},
		"a class that says no":          {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}, "false", nil, false},
		"a clone":                       {&corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, "true", nil, false},
		"another namespace's snapshot":  {&corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s", Namespace: ptr.To("other")}, "true", nil, false},
		"another API's snapshot":        {&corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "VolumeSnapshot", Name: "s"}, "true", nil, false},
		"no source":                     {nil, "true", nil, false},
	} {
		f := twoNodes()
		f.Class.Provisioner, f.Class.Parameters[api.ParameterRestoreOnOtherNodes] = api.DriverName, test.value
		f.Claim.Spec.DataSourceRef, f.Claim.Spec.AccessModes = test.ref, test.modes
		if got := IsPlacedByScheduler(&f.Claim, f.Class); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
		f.Source = &Source{Kind: "VolumeSnapshot", Name: "s", Node: "node-9"}
		for _, n := range Explain(f).Nodes {
			if is := strings.Contains(strings.Join(n.Obstacles, "; "), "on the disks of its source"); is == test.want {
				t.Errorf("%s: the obstacles of %s are %q", name, n.Node, n.Obstacles)
			}
		}
	}
	f := twoNodes()
	f.Claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(group), Kind: "VolumeSnapshot", Name: "s"}
	f.Class.Parameters[api.ParameterRestoreOnOtherNodes], f.Class.Provisioner = "true", "other.io"
	if IsPlacedByScheduler(&f.Claim, f.Class) || IsPlacedByScheduler(&f.Claim, nil) {
		t.Error("another driver's class, or none, places a copy")
	}
}
