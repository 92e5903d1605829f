package pending

import (
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// term names nodes by the driver's label.
func term(operator corev1.NodeSelectorOperator, nodes ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.TopologyKey, Operator: operator, Values: nodes}}}
}

// TestNodeOf: a volume is on a node if each term of its affinity demands this node.
func TestNodeOf(t *testing.T) {
	for name, test := range map[string]struct {
		terms []corev1.NodeSelectorTerm
		want  string
	}{
		"one term":            {[]corev1.NodeSelectorTerm{term("In", "node-1")}, "node-1"},
		"two terms, one node": {[]corev1.NodeSelectorTerm{term("In", "node-1"), term("In", "node-1")}, "node-1"},
		"two terms":           {[]corev1.NodeSelectorTerm{term("In", "node-1"), term("In", "node-2")}, ""},
		"a term without it":   {[]corev1.NodeSelectorTerm{term("In", "node-1"), {}}, ""},
		"two nodes":           {[]corev1.NodeSelectorTerm{term("In", "node-1", "node-2")}, ""},
		"not this node":       {[]corev1.NodeSelectorTerm{term("NotIn", "node-1")}, ""},
		"no term":             {nil, ""},
	} {
		pv := &corev1.PersistentVolume{}
		pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: test.terms}}
		if got := NodeOf(pv); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := IsOn(pv, "node-1"); got != (test.want == "node-1") {
			t.Errorf("%s: on node-1: %t", name, got)
		}
		pv.Spec.CSI.Driver = "ebs.csi.aws.com"
		if got := NodeOf(pv); got != "" {
			t.Errorf("%s, of another driver: %q", name, got)
		}
	}
	if got := NodeOf(&corev1.PersistentVolume{}); got != "" {
		t.Errorf("without affinity: %q", got)
	}
}

func TestClaimNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "c", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
	}}}
	if got := ClaimNames(pod); !slices.Equal(got, []string{"data", "db-c"}) {
		t.Errorf("%q", got)
	}
}

// TestNodeOfClaim: the selected node counts while the claim is unbound, then only the affinity of its PersistentVolume.
func TestNodeOfClaim(t *testing.T) {
	onNode2 := func(change func(pv *corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := &corev1.PersistentVolume{}
		pv.Name, pv.Spec.CSI = "pvc-1", &corev1.CSIPersistentVolumeSource{Driver: api.DriverName}
		pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "1"}
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term("In", "node-2")}}}
		change(pv)
		return pv
	}
	for name, test := range map[string]struct {
		volume, selected string
		pv               *corev1.PersistentVolume
		want             string
	}{
		"unbound":                              {"", "node-1", nil, "node-1"},
		"unbound, and no node selected":        {"", "", nil, ""},
		"bound":                                {"pvc-1", "node-2", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"bound, another node selected":         {"pvc-1", "node-1", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"bound, no node selected":              {"pvc-1", "", onNode2(func(*corev1.PersistentVolume) {}), "node-2"},
		"the volume is not known":              {"pvc-1", "node-1", nil, ""},
		"the claim names another volume":       {"pvc-2", "node-1", onNode2(func(*corev1.PersistentVolume) {}), ""},
		"the volume is another claim's":        {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "2" }), ""},
		"the volume is reserved for the claim": {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "" }), "node-2"},
		"the volume is another driver's":       {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com" }), ""},
		"the volume has no affinity":           {"pvc-1", "node-1", onNode2(func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil }), ""},
	} {
		claim := &corev1.PersistentVolumeClaim{}
		claim.Namespace, claim.Name, claim.UID, claim.Spec.VolumeName = "shop", "data", "1", test.volume
		claim.Annotations = map[string]string{api.AnnotationSelectedNode: test.selected}
		if got := NodeOfClaim(claim, test.pv); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestIsPlacedByScheduler: a restore or clone of a class that asks for full copies is on any node, and nothing else with a source.
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
		"a clone":                       {&corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, "true", nil, true},
		"a clone that is read-only":     {&corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, "true", []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, false},
		"a clone of another class":      {&corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "c"}, "", nil, false},
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

// TestBytesOf: a quantity that a tenant or a node wrote costs nothing, whatever its exponent, and is never less than it says.
func TestBytesOf(t *testing.T) {
	for text, want := range map[string]lvm.Bytes{
		"0": 0, "1Gi": lvm.GiB, "1500m": 2, "1n": 1, "9223372036854775807": math.MaxInt64, "8Ei": math.MaxInt64, "-1Gi": -lvm.GiB, "9E": 9e18, "10E": math.MaxInt64,
		"1e18": 1e18, "1e30": math.MaxInt64, "1e999999999": math.MaxInt64, "5e2000000000": math.MaxInt64, "0e999999999": 0,
		"1e-9": 1, "1.5Gi": lvm.GiB * 3 / 2,
	} {
		q := resource.MustParse(text)
		if got := BytesOf(&q); got != want {
			t.Errorf("%s is %d, want %d", text, int64(got), int64(want))
		}
	}
}
