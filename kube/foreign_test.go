package kube

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// These tests feed the agent with objects of other drivers, and with fields that no program of Kubernetes writes. It changes nothing because of them,
// writes no event, and goes on.

const otherDriver = "other.io"

// untouched is the limits of volumes that no test here may change.
type untouched struct{ t *testing.T }

func (u untouched) SetLimits(_ context.Context, id lvm.ID, _ string, _ lvm.Limits) (lvm.Volume, error) {
	u.t.Errorf("the limits of volume %s were set", id)
	return lvm.Volume{}, nil
}

// expectNoWrite fails if there is a request other than to read.
func expectNoWrite(t *testing.T, what string, sent []string) {
	t.Helper()
	for _, request := range sent {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("%s: the agent sent %s", what, request)
		}
	}
}

func TestForeignAndMalformedClaims(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	larger := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	ofOther := func(change func(pv *corev1.PersistentVolume)) *corev1.PersistentVolume {
		pv := kubetest.VolumeOn("node-1", "data")
		pv.Spec.CSI.Driver = otherDriver
		change(pv)
		return pv
	}
	asItIs := func(*corev1.PersistentVolume) {}
	bound := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase, c.Spec.Resources.Requests = "pvc-data", corev1.ClaimBound, larger
	}
	for name, test := range map[string]struct {
		change func(c *corev1.PersistentVolumeClaim)
		pv     *corev1.PersistentVolume
	}{
		"another driver's, expanding": {func(c *corev1.PersistentVolumeClaim) {
			bound(c)
			c.Annotations[api.AnnotationStorageProvisioner] = otherDriver
		}, ofOther(asItIs)},
		"another driver's static volume, expanding": {bound, ofOther(asItIs)},
		"another driver's, with our handle":         {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeAttributes = nil })},
		"no CSI":                                    {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil })},
		"no affinity":                               {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.NodeAffinity = api.DriverName, nil })},
		"an empty handle":                           {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = api.DriverName, "" })},
		"a huge handle":                             {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = api.DriverName, huge })},
		"no claimRef":                               {bound, ofOther(func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver, pv.Spec.ClaimRef = api.DriverName, nil })},
		"its volume is gone":                        {bound, nil},
		"the name of no volume":                     {func(c *corev1.PersistentVolumeClaim) { bound(c); c.Spec.VolumeName = "../" + huge }, nil},
		"an attributes class":                       {func(c *corev1.PersistentVolumeClaim) { bound(c); c.Spec.VolumeAttributesClassName = ptr.To("gold") }, ofOther(asItIs)},
		"a change of attributes": {func(c *corev1.PersistentVolumeClaim) {
			bound(c)
			c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{}
		}, ofOther(asItIs)},
		"another class, selected here": {func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationSelectedNode] = "node-1" }, nil},
		"another class, of a snapshot": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(api.SnapshotGroup), Kind: kubeclient.KindSnapshot, Name: "s"}
		}, nil},
		"no class":          {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }, nil},
		"a huge class":      {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &huge }, nil},
		"a huge annotation": {func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationSelectedNode] = huge }, nil},
		"a source without a name": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.DataSourceRef = ptr.To("late"), &corev1.TypedObjectReference{Kind: kubeclient.KindClaim}
		}, nil},
		"a source of another kind": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.DataSourceRef = ptr.To("late"), &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Backup", Name: "b"}
		}, nil},
		"a selector, selected here": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.Selector, c.Annotations[api.AnnotationSelectedNode] = ptr.To("late"), &metav1.LabelSelector{}, "node-1"
		}, nil},
		"a phase that Kubernetes does not know": {func(c *corev1.PersistentVolumeClaim) { bound(c); c.Status.Phase = "Haunted" }, ofOther(asItIs)},
	} {
		answers := map[string]any{}
		if test.pv != nil {
			answers["GET /api/v1/persistentvolumes/pvc-data"] = test.pv
		}
		client, sent := kubetest.RecordedClient(t, answers)
		agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: snapshots{}, Limits: untouched{t}, Log: slog.New(slog.DiscardHandler)})
		_ = agent.classes.Add(kubetest.Class("late", api.DriverName, late))
		_ = agent.classes.Add(kubetest.Class("other", otherDriver, immediate))
		claim := kubetest.Claim("data", "other", "")
		claim.Annotations = map[string]string{}
		test.change(claim)
		kept, err := agent.claims.Transformer()(claim)
		if err != nil || agent.claims.Add(kept) != nil || agent.claims.Update(kept) != nil {
			t.Errorf("%s: the store: %v", name, err)
		}
		for agent.queue.Len() > 0 {
			agent.next(t.Context())
		}
		expectNoWrite(t, name, sent())
		if err := agent.claims.Delete(claim); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		agent.queue.ShutDown()
	}
}

func TestForeignAndMalformedClasses(t *testing.T) {
	client, sent := kubetest.RecordedClient(t, nil)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	defer agent.queue.ShutDown()
	huge := kubetest.Class("huge", strings.Repeat("x", 1<<20), immediate)
	huge.Parameters = map[string]string{api.ParameterVolumeGroup: "vg"}
	for _, class := range []any{kubetest.Class("foreign", otherDriver, immediate), kubetest.Class("none", "", ""), huge, &storagev1.StorageClass{}, &corev1.Node{}} {
		stripped, err := agent.classes.Transformer()(class)
		if err != nil || agent.classes.Add(stripped) != nil || agent.classes.Delete(stripped) != nil || agent.classes.Add(stripped) != nil {
			t.Errorf("%T: %v", class, err)
		}
	}
	if kept := agent.classes.Items(func(*storagev1.StorageClass) bool { return true }); len(kept) > 0 || agent.queue.Len() > 0 {
		t.Errorf("%d classes are kept, and %d warned of", len(kept), agent.queue.Len())
	}
	expectNoWrite(t, "classes", sent())
}

// TestForeignAndMalformedContents: neither a restore nor the label of a node follows from them.
func TestForeignAndMalformedContents(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	for name, change := range map[string]func(c *kubeclient.Content){
		"another driver's, with our handle": func(c *kubeclient.Content) { c.Spec.Driver = otherDriver },
		"no driver":                         func(c *kubeclient.Content) { c.Spec.Driver = "" },
		"not taken":                         func(c *kubeclient.Content) { c.Status.SnapshotHandle = "" },
		"not ready":                         func(c *kubeclient.Content) { c.Status.ReadyToUse = false },
		"another handle":                    func(c *kubeclient.Content) { c.Status.SnapshotHandle = "snap-0a1b" },
		"a huge handle":                     func(c *kubeclient.Content) { c.Status.SnapshotHandle = huge },
		"a path":                            func(c *kubeclient.Content) { c.Status.SnapshotHandle = kubetest.TestVG + "/../" + huge },
		"another node's":                    func(c *kubeclient.Content) { c.Labels[api.LabelManagedBy] = "node-2" },
		"no label":                          func(c *kubeclient.Content) { c.Labels = nil },
		"no snapshot":                       func(c *kubeclient.Content) { c.Spec.VolumeSnapshotRef.UID = "" },
		"two handles":                       func(c *kubeclient.Content) { c.Spec.Source.SnapshotHandle = handleHere },
	} {
		snapshot := &kubeclient.Snapshot{TypeMeta: metav1.TypeMeta{APIVersion: kubeclient.SnapshotVersion.String(), Kind: kubeclient.KindSnapshot}}
		snapshot.Namespace, snapshot.Name, snapshot.UID, snapshot.Status.Content = "ns", "nightly", "uid", "a"
		client, sent := kubetest.RecordedClient(t, map[string]any{"GET /apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly": snapshot})
		agent := NewAgent(Config{Client: client, Node: "node-1", Snapshots: true, Log: slog.New(slog.DiscardHandler),
			Volumes: snapshots{kubetest.SnapshotHandle("uid"): nil, handleHere: nil}})
		content := kubetest.ContentOf("a", "uid", kubetest.SnapshotHandle("uid"))
		change(content)
		_ = agent.contents.Add(content.DeepCopyObject())
		if here, _, err := agent.holds(t.Context(), source{kubeclient.KindSnapshot, "ns/nightly"}); here || err != nil {
			t.Errorf("%s: a restore is possible here: %t, %v", name, here, err)
		}
		free := content.DeepCopyObject().(*kubeclient.Content)
		free.Spec.Source.SnapshotHandle, free.Status.SnapshotHandle = content.Status.SnapshotHandle, ""
		if free.Spec.Driver == api.DriverName && free.Spec.Source.SnapshotHandle == kubetest.SnapshotHandle("uid") {
			free.Spec.Source.SnapshotHandle = "" // those are ready, and concern restores alone
		}
		_ = agent.unlabelled.Add(free)
		for agent.queue.Len() > 0 {
			agent.next(t.Context())
		}
		expectNoWrite(t, name, sent())
		agent.queue.ShutDown()
	}
}

// TestForeignAndMalformedVolumes: another driver's PersistentVolume with the name or the handle of a volume of ours neither owns it nor shares it.
func TestForeignAndMalformedVolumes(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	var foreign []*corev1.PersistentVolume
	for name, change := range map[string]func(pv *corev1.PersistentVolume){
		"pvc-data":  func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = otherDriver },
		"no-csi":    func(pv *corev1.PersistentVolume) { pv.Spec.CSI = nil },
		"no-handle": func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "" },
		"no-too":    func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle, pv.Spec.NodeAffinity = "", nil },
		"huge":      func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle, pv.Spec.ClaimRef.Name = huge, huge },
		"prefix":    func(pv *corev1.PersistentVolume) { pv.Spec.CSI.VolumeHandle += "x" },
		"empty":     func(pv *corev1.PersistentVolume) { pv.Spec = corev1.PersistentVolumeSpec{} },
	} {
		pv := kubetest.VolumeOn("node-1", "data")
		pv.Name = name
		change(pv)
		foreign = append(foreign, pv)
	}
	client, sent := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/persistentvolumes": listOf(foreign...), "GET /api/v1/persistentvolumes/pvc-data": foreign[indexOf(foreign, "pvc-data")]})
	held := lvm.ManagedVolume{Volume: lvm.Volume{ID: dataVolume, Name: "pvc-data", UUID: "u"}}
	agent := NewAgent(Config{Client: client, Node: "node-1", Volumes: snapshots{dataVolume.String(): nil}, Log: slog.New(slog.DiscardHandler),
		Holdings: func(context.Context) (lvm.ManagedVolumes, error) {
			return lvm.ManagedVolumes{Owned: []lvm.ManagedVolume{held}}, nil
		}})
	defer agent.queue.ShutDown()
	if err := agent.MayDelete(t.Context(), dataVolume); err != nil {
		t.Errorf("it is not deleted: %v", err)
	}
	if shared, err := client.SharedHandles(t.Context()); err != nil || len(shared) != 1 || len(shared[""]) != 2 {
		t.Errorf("shared handles: %v, %v", shared, err)
	}
	search := &OrphanSearch{Client: client, Holdings: agent.audit.search.Holdings}
	orphans, pvs, err := search.Find(t.Context())
	if err != nil || len(orphans) != 1 || len(pvs) != 0 {
		t.Errorf("orphans %v, PersistentVolumes %v, %v", orphans, pvs, err)
	}
	for _, pv := range foreign {
		agent.rememberUnchosen(pv)
		if err := agent.notLost(t.Context(), pv); err != nil {
			t.Errorf("%s: %v", pv.Name, err)
		}
	}
	if err := agent.adoptClaims(t.Context(), foreign); err != nil {
		t.Error(err)
	}
	expectNoWrite(t, "volumes", sent())
}

func indexOf(pvs []*corev1.PersistentVolume, name string) int {
	for i, pv := range pvs {
		if pv.Name == name {
			return i
		}
	}
	return -1
}

// TestDroppedSource: the watch keeps what shows that a claim asked for data, although it strips it of all else.
func TestDroppedSource(t *testing.T) {
	agent := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1"})
	defer agent.queue.ShutDown()
	for name, fields := range map[string]string{"copy": `{"f:spec": {"f:dataSourceRef": {"f:namespace": {}}}}`, "empty": `{"f:spec": {"f:resources": {}}}`} {
		claim := kubetest.Claim(name, "late", "")
		claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(fields)}}
		kept, err := agent.claims.Transformer()(claim)
		if err != nil || agent.claims.Add(kept) != nil {
			t.Fatal(err)
		}
		if waiting, _ := agent.claims.waiting("ns/" + name); (len(waiting.ManagedFields) > 0) != (name == "copy") {
			t.Errorf("%s: kept %v", name, waiting.ManagedFields)
		}
	}
	err := agent.MayCreate("ns", "copy", "claim-copy")
	if lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "claim ns/copy") || !strings.Contains(err.Error(), "create it in the namespace of its source") {
		t.Errorf("the claim that asked for data: %v", err)
	}
	for name, uid := range map[string]string{"empty": "claim-empty", "copy": "a later claim", "unknown": "claim-unknown"} {
		if err := agent.MayCreate("ns", name, uid); err != nil {
			t.Errorf("%s (%s): %v", name, uid, err)
		}
	}
}
