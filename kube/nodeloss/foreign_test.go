package nodeloss

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// deletedGroup is the content of a group snapshot on a node, which the cluster deletes.
func deletedGroup(node string) *kubeclient.GroupContent {
	c := &kubeclient.GroupContent{TypeMeta: metav1.TypeMeta{APIVersion: kubeclient.GroupSnapshotVersion.String(), Kind: kubeclient.KindGroupContent}}
	c.Name, c.ResourceVersion, c.Labels, c.Finalizers = "group", "7", map[string]string{api.LabelManagedBy: node}, []string{"another", api.FinalizerGroupContent}
	c.DeletionTimestamp, c.Spec.Driver = &metav1.Time{Time: time.Now()}, api.DriverName
	return c
}

// TestGroupSnapshotOfLostNode: only the node of a group snapshot lets its content go, so nodelvm-controller does that for a node that is gone.
func TestGroupSnapshotOfLostNode(t *testing.T) {
	const read, write = "GET /apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/group", "PATCH /apis/groupsnapshot.storage.k8s.io/v1/volumegroupsnapshotcontents/group"
	for name, test := range map[string]struct {
		change func(c *kubeclient.GroupContent)
		node   *corev1.Node
		marked bool // long ago
		want   bool // a write
	}{
		"the loss is recorded":       {func(*kubeclient.GroupContent) {}, nil, false, true},
		"let go":                     {func(*kubeclient.GroupContent) {}, nil, true, true},
		"not deleted":                {func(c *kubeclient.GroupContent) { c.DeletionTimestamp = nil }, nil, true, false},
		"another finalizer":          {func(c *kubeclient.GroupContent) { c.Finalizers = []string{"another"} }, nil, true, false},
		"the node is there":          {func(*kubeclient.GroupContent) {}, nodeNamed("n"), false, false},
		"the node is back":           {func(*kubeclient.GroupContent) {}, nodeNamed("n"), true, true},
		"the node is out of service": {func(*kubeclient.GroupContent) {}, tainted(corev1.TaintNodeOutOfService), true, false},
		"another driver's":           {func(c *kubeclient.GroupContent) { c.Spec.Driver = "other.io" }, nil, true, false},
		"another node's by now":      {func(c *kubeclient.GroupContent) { c.Labels[api.LabelManagedBy] = "m" }, nil, true, false},
		"no node's by now":           {func(c *kubeclient.GroupContent) { c.Labels = nil }, nil, true, false},
	} {
		live, known := deletedGroup("n"), deletedGroup("n")
		test.change(live)
		answers := map[string]any{read: live, write: live}
		if test.node != nil {
			answers["GET /api/v1/nodes/n"] = test.node
		}
		objects := []runtime.Object{known}
		if test.node != nil {
			test.node.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
			objects = append(objects, test.node)
		}
		if test.marked {
			lost := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
			live.Annotations = map[string]string{api.AnnotationLostSince: lost.Format(time.RFC3339)}
			known.Annotations = live.Annotations
		}
		r, sent := recordedRound(t, answers, objects...)
		if test.marked {
			recorded(t, r.Losses, lossKey{node: "n"}, time.Now().Add(-2*time.Hour))
		}
		r.contentChanged(kubeclient.KindGroupContent)(nil, r.Groups.On("n")[0])
		worked(t, r)
		if got := slices.Contains(sent(), write); got != test.want {
			t.Errorf("%s: requests %q", name, sent())
		}
	}
}

// TestForeignAndMalformedObjects: whatever other drivers, tenants and restore tools leave in the cluster, nodelvm-controller writes none of it when a node is lost, and
// still finds its own volume.
func TestForeignAndMalformedObjects(t *testing.T) {
	huge := strings.Repeat("h", 1<<20)
	volume := func(name string, change func(pv *corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := kubetest.VolumeOn("n", name)
		change(pv)
		return pv
	}
	claim := func(name, class string) *corev1.PersistentVolumeClaim {
		c := kubetest.Claim(name, class, "")
		c.Annotations = map[string]string{api.AnnotationSelectedNode: "n"}
		return c
	}
	content := func(name string, change func(c *kubeclient.Content)) *kubeclient.Content {
		c := kubetest.ContentOf(name, "uid", "")
		c.Labels[api.LabelManagedBy] = "n"
		change(c)
		return c
	}
	foreignGroup := deletedGroup("n")
	foreignGroup.Spec.Driver = "other.io"
	objects := []runtime.Object{
		volume("other-driver", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeAttributes = "other.io", nil }),
		volume("no-csi", func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil }),
		volume("no-affinity", func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity = nil }),
		volume("no-selector", func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity.Required = nil }),
		volume("no-term", func(pv *corev1.PersistentVolume) { pv.Spec.NodeAffinity.Required.NodeSelectorTerms = nil }),
		volume("no-handle", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "" }),
		volume("huge-handle", func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = huge }),
		volume("no-claim", func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }),
		volume("huge-claim", func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = huge }),
		claim("other-class", "other"), claim("no-class", ""), claim("huge-class", huge),
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "other", Annotations: map[string]string{api.AnnotationOnNodeLoss: api.OnNodeLossRelease}}, Provisioner: "other.io"},
		content("other-content", func(c *kubeclient.Content) { c.Spec.Driver = "other.io" }),
		content("huge-content", func(c *kubeclient.Content) { c.Status.SnapshotHandle, c.Spec.VolumeSnapshotRef.Name = huge, huge }),
		content("empty-content", func(c *kubeclient.Content) { c.Status.SnapshotHandle, c.Spec.VolumeSnapshotRef.UID = "", "" }),
		foreignGroup,
	}
	answers := map[string]any{"POST /api/v1/namespaces/default/events": &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
		"POST /api/v1/namespaces/ns/events":                 &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}},
		"GET /apis/storage.k8s.io/v1/storageclasses/other":  withKind(objects[12]),
		"PATCH /api/v1/persistentvolumes/pvc-own":           kubetest.VolumeOn("n", "own"),
		"GET /api/v1/namespaces/ns/persistentvolumeclaims/": kubetest.Claim("own", "late", "pvc-own"),
	}
	for _, o := range append(objects, kubetest.VolumeOn("n", "own")) {
		switch o := o.(type) {
		case *corev1.PersistentVolume:
			answers["GET /api/v1/persistentvolumes/"+o.Name] = o
		case *corev1.PersistentVolumeClaim:
			answers["GET /api/v1/namespaces/ns/persistentvolumeclaims/"+o.Name] = o
		case *kubeclient.Content:
			o.TypeMeta = metav1.TypeMeta{APIVersion: kubeclient.SnapshotVersion.String(), Kind: kubeclient.KindContent}
			answers["GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/"+o.Name] = o
		}
	}
	r, sent := recordedRound(t, answers, append(objects, kubetest.VolumeOn("n", "own"))...)
	for _, v := range r.Volumes.All() {
		r.volumeChanged(nil, v)
	}
	r.nodeChanged(nodeNamed("n"), nil)
	for _, c := range r.Claims.All() {
		r.add(kubeclient.KindClaim, c.Key())
	}
	for kind, all := range map[string][]string{kubeclient.KindContent: {"other-content", "huge-content", "empty-content", "missing"}, kubeclient.KindGroupContent: {"group", "missing"}, kindReturned: {"pvc-other-driver", "missing"}} {
		for _, key := range all {
			r.add(kind, key)
		}
	}
	worked(t, r)
	for _, request := range sent() {
		foreign := strings.HasPrefix(request, "PATCH ") || strings.HasPrefix(request, "DELETE ")
		malformed := slices.ContainsFunc([]string{"pvc-own", "pvc-no-handle", "pvc-huge-handle", "pvc-no-claim", "pvc-huge-claim", "huge-content", "empty-content"}, func(name string) bool { return strings.HasSuffix(request, "/"+name) })
		if foreign && !malformed { // those are this driver's: the time of their loss is recorded
			t.Errorf("it sent %s", request)
		}
	}
	if !slices.Contains(sent(), "PATCH /api/v1/persistentvolumes/pvc-own") {
		t.Errorf("it does not record the loss of its own volume: %q", sent())
	}
}

func withKind(o runtime.Object) runtime.Object {
	class := o.DeepCopyObject().(*storagev1.StorageClass)
	class.TypeMeta = metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"}
	return class
}
