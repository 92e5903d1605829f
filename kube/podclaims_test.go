package kube

import (
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

func podWith(name string, age time.Duration, claims ...string) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v-" + claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return pod
}

// TestOrderOfPodsThatUseAClaim checks which pods use a claim, and in which order their claims are gathered.
func TestOrderOfPodsThatUseAClaim(t *testing.T) {
	now := metav1.Now()
	deleted, done, gated := podWith("deleted", 9, "a", "b", "c", "d"), podWith("done", 9, "a", "b", "c", "d"), podWith("gated", 9, "a", "b", "c", "d")
	deleted.DeletionTimestamp = &now
	done.Status.Phase = corev1.PodFailed
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
	ephemeral := podWith("eph", 1, "b")
	ephemeral.Spec.Volumes = append(ephemeral.Spec.Volumes, corev1.Volume{Name: "a", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
	for _, test := range []struct {
		name  string
		claim string
		pods  []corev1.Pod
		want  string
	}{
		{"no pod", "a", nil, ""},
		{"none that uses it", "a", []corev1.Pod{podWith("p", 1, "b")}, ""},
		{"the only one", "a", []corev1.Pod{podWith("o", 1, "b"), podWith("p", 1, "a", "b")}, "p"},
		{"none that waits for a node", "a", []corev1.Pod{deleted, done, gated}, ""},
		{"the one with most claims", "a", []corev1.Pod{podWith("old", 9, "a"), podWith("wide", 1, "b", "a"), podWith("twice", 1, "a", "a", "a")}, "wide"},
		{"the oldest of equals", "a", []corev1.Pod{podWith("young", 1, "a"), podWith("old", time.Minute, "a"), podWith("middle", time.Second, "a")}, "old"},
		{"one name of several", "a", []corev1.Pod{podWith("q", 0, "a"), podWith("p", 0, "a")}, "p"},
		{"a generic ephemeral volume's", "eph-a", []corev1.Pod{ephemeral}, "eph"},
	} {
		var pods []waitingPod
		for i := range test.pods {
			if pod, matters := waitingPodOf(&test.pods[i]); matters {
				pods = append(pods, pod)
			}
		}
		got := ""
		for _, pod := range hardestFirst(pods, test.claim) {
			if got == "" && slices.Contains(pod.claims, test.claim) {
				got = pod.name
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestPodClaim: what the driver may have to create for a claim of a pod, and where its volume is or will be.
func TestPodClaim(t *testing.T) {
	here := map[string]string{api.AnnotationSelectedNode: "node-1"}
	unbound := api.PodClaim{Name: "data", UID: "claim-data", Node: "node-1", AccessModes: []string{"ReadWriteOnce"}, Parameters: map[string]string{"volumeGroup": "vg"}}
	byOthers := api.PodClaim{Name: "data", UID: "claim-data", Node: "node-1", ByOthers: true}
	restored, cloned := unbound, unbound
	restored.FromSnapshot, cloned.FromClaim = "source", "source"
	raw := unbound
	raw.Size, raw.Block, raw.AccessModes = 1<<30, true, []string{"ReadWriteOncePod"}
	selecting := unbound
	selecting.ByOthers = true
	from := func(group *string, kind string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: group, Kind: kind, Name: "source"}
		}
	}
	for name, test := range map[string]struct {
		change func(c *corev1.PersistentVolumeClaim)
		want   api.PodClaim
		ours   bool
	}{
		"unbound": {func(*corev1.PersistentVolumeClaim) {}, unbound, true},
		"a raw one": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeMode, c.Spec.AccessModes = ptr.To(corev1.PersistentVolumeBlock), []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		}, raw, true},
		"a restore":         {from(ptr.To("snapshot.storage.k8s.io"), "VolumeSnapshot"), restored, true},
		"a clone":           {from(nil, "PersistentVolumeClaim"), cloned, true},
		"a populator's":     {from(ptr.To("volsync.backube"), "ReplicationDestination"), byOthers, true},
		"with a selector":   {func(c *corev1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, selecting, true},
		"bound":             {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-data" }, api.PodClaim{Name: "data", UID: "claim-data", Node: "node-2", Bound: true}, true},
		"being deleted":     {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, api.PodClaim{}, false},
		"of another driver": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("foreign") }, api.PodClaim{}, false},
		"another's, selects": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName, c.Spec.Selector = ptr.To("foreign"), &metav1.LabelSelector{}
		}, api.PodClaim{}, false},
		"immediate": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("now") }, api.PodClaim{}, false},
	} {
		class := kubetest.Class("late", api.DriverName, late)
		class.Parameters = map[string]string{"volumeGroup": "vg"}
		client, _ := kubetest.RecordedClient(t, map[string]any{"GET /api/v1/persistentvolumes/pvc-data": kubetest.VolumeOn("node-2", "data"),
			"GET /apis/storage.k8s.io/v1/storageclasses/late": class, "GET /apis/storage.k8s.io/v1/storageclasses/foreign": kubetest.Class("foreign", "ebs.example.com", late),
			"GET /apis/storage.k8s.io/v1/storageclasses/now": kubetest.Class("now", api.DriverName, immediate)})
		agent := NewAgent(Config{Client: client, Node: "node-1"})
		claim := kubetest.Claim("data", "late", "")
		claim.Annotations, claim.Spec.AccessModes = here, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		test.change(claim)
		if got, ours, err := agent.podClaim(t.Context(), claim); err != nil || ours != test.ours || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %+v, %t, %v", name, got, ours, err)
		}
	}
}

// TestWaitingHere: WaitingHere is true while a claim waits and this node is its selected node.
func TestWaitingHere(t *testing.T) {
	now := metav1.Now()
	for _, test := range []struct {
		name   string
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		{"given to this node", func(*corev1.PersistentVolumeClaim) {}, true},
		{"given back", func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, api.AnnotationSelectedNode) }, false},
		{"given to another node", func(c *corev1.PersistentVolumeClaim) { c.Annotations[api.AnnotationSelectedNode] = "node-2" }, false},
		{"bound", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-1" }, false},
		{"being deleted", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &now }, false},
		{"another of its name", func(c *corev1.PersistentVolumeClaim) { c.UID = "uid-2" }, false},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "data", UID: "uid-1", Annotations: map[string]string{api.AnnotationSelectedNode: "node-1"},
		}}
		test.change(claim)
		a := &Agent{claims: newClaimStore("node-1", func(string) {})}
		must(t, a.claims.Add(claim))
		if got := a.WaitingHere("shop", "data", "uid-1"); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
