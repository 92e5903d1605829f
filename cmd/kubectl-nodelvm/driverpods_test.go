package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// shippedPod returns a running pod of the released DaemonSet on node-1.
func shippedPod(t *testing.T, namespace, name string) corev1.Pod {
	t.Helper()
	template := shipped[appsv1.DaemonSet](t, "DaemonSet", "nodelvm").Spec.Template
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: template.Labels}, Spec: template.Spec}
	pod.Spec.NodeName, pod.Status.Phase = "node-1", corev1.PodRunning
	return pod
}

// TestForgedDriverPods: a pod with the driver's labels is a driver only if whoever created it is root on its node. The plugin reads no
// page of another pod.
func TestForgedDriverPods(t *testing.T) {
	for name, forge := range map[string]func(spec *corev1.PodSpec){
		"no privilege":      func(spec *corev1.PodSpec) { spec.Containers[0].SecurityContext = nil },
		"privilege false":   func(spec *corev1.PodSpec) { spec.Containers[0].SecurityContext.Privileged = ptr.To(false) },
		"another container": func(spec *corev1.PodSpec) { spec.Containers[0].Name = "web" },
		"no host directory": func(spec *corev1.PodSpec) { spec.Volumes = nil },
		"another host path": func(spec *corev1.PodSpec) { eachHostPath(spec, "/tmp/nodelvm.io") },
		"users of the pod":  func(spec *corev1.PodSpec) { spec.HostUsers = ptr.To(false) },
		"a tenant's own page": func(spec *corev1.PodSpec) {
			*spec = corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "nodelvm"}}}
		},
	} {
		forged := shippedPod(t, "tenant", "a")
		forge(&forged.Spec)
		c, asked := apiServer(t, map[string]any{
			"/api/v1/pods":              corev1.PodList{Items: []corev1.Pod{forged, shippedPod(t, "nodelvm-system", "nodelvm-1")}},
			"/api/v1/persistentvolumes": corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{volume("pvc-1", "node-1", vg1, "shop/data-db-0", "10Gi")}},
			"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents": struct{}{},
		})
		_, incomplete, err := c.leftOn(t.Context(), "node-1")
		if err != nil || incomplete == nil || errors.Is(incomplete, errNoDriverThere) {
			t.Errorf("%s: %v, %v; want that the driver does not answer", name, incomplete, err)
		}
		ofPods := slices.DeleteFunc(asked(), func(path string) bool { return !strings.Contains(path, "/pods/") })
		if len(ofPods) == 0 || slices.ContainsFunc(ofPods, func(path string) bool {
			return !strings.HasPrefix(path, "/api/v1/namespaces/nodelvm-system/pods/nodelvm-1/")
		}) {
			t.Errorf("%s: the plugin asked %q", name, ofPods)
		}
	}
	elsewhere := shippedPod(t, "nodelvm-system", "nodelvm-1")
	eachHostPath(&elsewhere.Spec, "/var/lib/k0s/kubelet/plugins/nodelvm.io/")
	if !isDriver(&elsewhere.Spec) {
		t.Error("a driver with another directory of the kubelet is none")
	}
}

func eachHostPath(spec *corev1.PodSpec, path string) {
	for i := range spec.Volumes {
		if spec.Volumes[i].HostPath != nil {
			spec.Volumes[i].HostPath = &corev1.HostPathVolumeSource{Path: path}
		}
	}
}

// TestUnscheduledDriverPod: the scheduler has not placed the driver's pod of a node. The plugin says so of that node, and does not count the pod as
// one of a node without a name.
func TestUnscheduledDriverPod(t *testing.T) {
	pod := shippedPod(t, "nodelvm-system", "nodelvm-1")
	pod.Spec.NodeName, pod.Status.Phase = "", corev1.PodPending
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}}}}}}
	c, _ := apiServer(t, map[string]any{"/api/v1/pods": corev1.PodList{Items: []corev1.Pod{pod}}, "/apis/storage.k8s.io/v1/storageclasses": struct{}{}})
	reports, err := c.nodeReports(t.Context())
	if err != nil || len(reports) != 1 || reports[0].Node != "node-1" || reports[0].Error != "the driver's pod nodelvm-1 is Pending" {
		t.Errorf("%+v, %v", reports, err)
	}
}

// TestForgedDaemonSet: every tenant can create a DaemonSet with the driver's labels and template, but no pods of it.
func TestForgedDaemonSet(t *testing.T) {
	set := func(namespace string) appsv1.DaemonSet {
		d := shipped[appsv1.DaemonSet](t, "DaemonSet", "nodelvm")
		d.Namespace = namespace
		return d
	}
	bare := set("a-tenant")
	bare.Spec.Template.Spec.Containers[0].SecurityContext = nil
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "nodelvm-system"}}}
	for name, test := range map[string]struct {
		sets []appsv1.DaemonSet
		pods []corev1.Pod
		want string // its namespace; "": none
		err  string
	}{
		"none":                         {nil, pods, "", ""},
		"the driver's":                 {[]appsv1.DaemonSet{set("a-tenant"), set("nodelvm-system")}, pods, "nodelvm-system", ""},
		"a tenant's only":              {[]appsv1.DaemonSet{set("a-tenant")}, pods, "", ""},
		"without privilege":            {[]appsv1.DaemonSet{bare}, nil, "", ""},
		"whose pods are refused":       {[]appsv1.DaemonSet{bare, set("nodelvm-system")}, nil, "nodelvm-system", ""},
		"two whose pods are refused":   {[]appsv1.DaemonSet{set("a-tenant"), set("nodelvm-system")}, nil, "", "a-tenant/nodelvm, nodelvm-system/nodelvm"},
		"the driver's has its one pod": {[]appsv1.DaemonSet{bare, set("nodelvm-system")}, pods, "nodelvm-system", ""},
	} {
		got, err := driverSet(test.sets, test.pods)
		namespace := ""
		if got != nil {
			namespace = got.Namespace
		}
		if namespace != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: that of %q, %v; want %q, %q", name, namespace, err, test.want, test.err)
		}
	}
}

// TestDrainCheckWithoutADriver: a node whose driver pod is gone is not reported as empty, unless it never had one.
func TestDrainCheckWithoutADriver(t *testing.T) {
	for label, empty := range map[string]bool{"node-1": false, "": true} {
		c, _ := apiServer(t, map[string]any{
			"/api/v1/pods":              corev1.PodList{},
			"/api/v1/persistentvolumes": corev1.PersistentVolumeList{},
			"/api/v1/nodes/node-1":      corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{api.TopologyKey: label}}},
			"/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents": struct{}{},
		})
		rows, incomplete, err := c.leftOn(t.Context(), "node-1")
		if must(t, err); (drainable(rows, incomplete) == nil) != empty {
			t.Errorf("with the label %q: %v", label, incomplete)
		}
	}
}

// TestDrainCheckOfTwoPods: during an update a node may have two driver pods. The rows are from both, and the report is complete only if
// both are.
func TestDrainCheckOfTwoPods(t *testing.T) {
	f := sound()
	empty, full := f.answers[0], f.answers[0]
	empty.page.Volumes = nil
	rows := leftRows("node-1", nil, nil, nil, []answer{empty, full, full})
	if len(rows) != 1 || rows[0].Kind != "orphan" || rows[0].Name != "shop/data-db-0" {
		t.Errorf("rows %+v", rows)
	}
	full.page.Volumes = []report.Volume{{ID: vg1 + "/pvc-1", State: string(lvm.StateDeleting)}}
	if rows := leftRows("node-1", nil, nil, nil, []answer{full, f.answers[0]}); len(rows) != 1 {
		t.Errorf("one says that it deletes the volume: %+v", rows)
	}
	failed := answer{node: "node-1", pod: "a", err: errors.New("its pod a is Pending")}
	for name, list := range map[string][]answer{"first": {failed, full}, "last": {full, failed}} {
		if err := drainable(nil, incompleteOf(list)); err == nil || !strings.Contains(err.Error(), "its pod a is Pending") {
			t.Errorf("the %s of two does not answer: %v", name, err)
		}
	}
	if err := incompleteOf([]answer{full, empty}); err != nil {
		t.Errorf("both answer: %v", err)
	}
	list := []answer{failed, full}
	if sortAnswers(list); list[0].err != nil {
		t.Errorf("the first answer is %+v", list[0])
	}
}
