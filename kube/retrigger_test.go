package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// given returns a waiting claim with a selected node.
func given(name, class, node string) *corev1.PersistentVolumeClaim {
	c := kubetest.Claim(name, class, "")
	c.Annotations = map[string]string{api.AnnotationSelectedNode: node}
	return c
}

// TestRetriggerIntervalsGrow: retries that do not help come at growing intervals.
func TestRetriggerIntervalsGrow(t *testing.T) {
	a, client := newAPI(t)
	a.set("storageclasses", "late", kubetest.Class("late", api.DriverName, late))
	a.set("persistentvolumeclaims", "overlooked", given("overlooked", "late", "node-1"))
	a.set("persistentvolumeclaims", "elsewhere", given("elsewhere", "late", "node-2"))
	a.set("persistentvolumeclaims", "theirs", given("theirs", "ebs", "node-1"))
	a.set("persistentvolumeclaims", "unplaced", kubetest.Claim("unplaced", "late", ""))
	populated := given("populated", "late", "node-1") // csi-provisioner waits for the populator
	populated.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Recipe", Name: "r"}
	a.set("persistentvolumeclaims", "populated", populated)
	selecting := given("selecting", "late", "node-1") // it waits for an existing volume
	selecting.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"velero.io/dynamic-pv-restore": "ns.data.x"}}
	a.set("persistentvolumeclaims", "selecting", selecting)
	agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
	const first = 100 * time.Millisecond
	agent.retryDelay, agent.retries = first, flowcontrol.NewBackOff(2*first, 4*first)
	begun := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); agent.Run(ctx) }()
	patched := func() []time.Time { a.mu.Lock(); defer a.mu.Unlock(); return a.patched }
	eventually(t, "four retries", func() bool { return len(patched()) >= 4 })
	cancel()
	<-ended
	before := begun
	for i, least := range []time.Duration{first, 2 * first, 4 * first, 4 * first} {
		if pause := patched()[i].Sub(before); pause < least {
			t.Errorf("retry %d came after %s, want %s at least", i+1, pause, least)
		}
		before = patched()[i]
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, o := range a.objects["persistentvolumeclaims"] {
		_, reminded := o.(*corev1.PersistentVolumeClaim).Annotations[api.AnnotationRetriedAt]
		if reminded != (name == "overlooked") {
			t.Errorf("claim %s: retried %v", name, reminded)
		}
	}
}

// TestClaimWithoutCreateCall: a claim counts as without a call from its last change until a CreateVolume call.
func TestClaimWithoutCreateCall(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	seen := func(version string) {
		c := given("data", "late", "node-1")
		c.ResourceVersion = version
		must(t, store.Add(c))
	}
	expect := func(when string, want bool) time.Time {
		t.Helper()
		since, silent := store.waitsSince("ns/data")
		if silent != want {
			t.Errorf("%s: silent %v", when, silent)
		}
		return since
	}
	asked := func() func() { return store.asked("ns/data") }
	expect("before it is known", false)
	answered := asked() // a csi-provisioner whose watch is ahead of the agent's
	seen("1")
	expect("new, and asked for already", false)
	answered()
	expect("answered", false)
	seen("2")
	first := expect("changed since", true)
	listed := given("data", "late", "node-1")
	listed.ResourceVersion = "2"
	list := func() {
		must(t, store.Replace([]any{listed}, ""))
	}
	if list(); expect("listed again", true) != first {
		t.Error("another list made it new")
	}
	one, other := asked(), asked()
	one()
	expect("of two requests one is answered", false)
	other()
	list()
	expect("answered, and listed again", false)
	listed.UID = "another"
	list()
	expect("another of its name", true)
	store.forgetCalls()
	if len(store.calls) != 1 {
		t.Errorf("calls of a moment ago: %v", store.calls)
	}
	store.calls["ns/data"] = calls{last: time.Now().Add(-time.Hour)}
	store.calls["ns/slow"] = calls{underWay: 1, last: time.Now().Add(-time.Hour)}
	if store.forgetCalls(); len(store.calls) != 1 || store.calls["ns/slow"].underWay != 1 {
		t.Errorf("of old calls: %v", store.calls)
	}
}

// TestGiveBack: a clone on this node without a CreateVolume call returns to the scheduler if its source is proven to be on another node, unless its class
// lets it be copied. If another driver has the source, an event says so.
func TestGiveBack(t *testing.T) {
	const claimPath, volumePath = "/api/v1/namespaces/ns/persistentvolumeclaims/", "/api/v1/persistentvolumes/"
	other := kubetest.VolumeOn("node-2", "data")
	other.Spec.ClaimRef.UID = "former"
	disk := kubetest.VolumeOn("node-2", "data")
	disk.Spec.CSI.Driver = "disks.example"
	theirs := other.DeepCopy()
	theirs.Spec.CSI.Driver = "disks.example"
	for name, test := range map[string]struct {
		source string
		there  map[string]any
		reason string // of an event; "": there is none
	}{
		"on another node":  {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": kubetest.VolumeOn("node-2", "data")}, api.ReasonSelectedNodeRemoved},
		"to be copied":     {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": kubetest.VolumeOn("node-2", "data")}, ""},
		"here":             {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": kubetest.VolumeOn("node-1", "data")}, ""},
		"another's volume": {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": other}, ""},
		"of another driver": {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": disk},
			api.ReasonSourceOfOtherDriver},
		"another's volume of another driver": {"data", map[string]any{"data": kubetest.Claim("data", "late", "pvc-data"), "pvc-data": theirs}, ""},
		"not bound":                          {"data", map[string]any{"data": kubetest.Claim("data", "late", "")}, ""},
		"no claim":                           {"data", nil, ""},
		"no name":                            {strings.Repeat("x", 300), nil, ""},
	} {
		answers := map[string]any{"PATCH " + claimPath + "clone": kubetest.Claim("clone", "late", ""), "POST /api/v1/namespaces/ns/events": &corev1.Event{}}
		for name, o := range test.there {
			answers["GET "+claimPath+name], answers["GET "+volumePath+name] = o, o
		}
		client, sent := kubetest.RecordedClient(t, answers)
		agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
		clone := given("clone", "late", "node-1")
		clone.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: test.source}
		must(t, agent.claims.Add(clone))
		if name == "to be copied" {
			agent.copies = offering{}
			class := kubetest.Class("late", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
			class.Parameters = map[string]string{api.ParameterRestoreOnOtherNodes: "true"}
			must(t, agent.classes.Add(class))
		}
		agent.retryDelay = time.Nanosecond
		if err := agent.retrigger(t.Context(), clone); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		told := slices.Contains(sent(), "POST /api/v1/namespaces/ns/events")
		event := agent.events.Object(kubeclient.Event{About: kubeclient.AboutClaim("ns", "clone", clone.UID), Reason: test.reason}, time.Now())
		ofReason := agent.events.Counts["ns/"+event.Name].Times > 0
		if told != (test.reason != "") || told != ofReason || !slices.Contains(sent(), "PATCH "+claimPath+"clone") {
			t.Errorf("%s: event %t, of the reason %t, the requests %q", name, told, ofReason, sent())
		}
	}
}

// TestLargeClaimIsIgnored: the store keeps no text of a claim that csi-provisioner does not get.
func TestLargeClaimIsIgnored(t *testing.T) {
	long := strings.Repeat("x", api.MaxObject)
	large := given("large", "late", "node-1")
	large.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: long}
	marked := kubetest.Claim("marked", "late", "pvc-marked")
	marked.Annotations = map[string]string{api.AnnotationTrimInterval: long}
	store := newClaimStore("node-1", func(string) {})
	for _, claim := range []*corev1.PersistentVolumeClaim{large, marked} {
		must(t, store.Add(claim))
	}
	kept, ok := store.waiting("ns/large")
	if !ok || kept.Size() > 1000 || kept.Spec.StorageClassName != nil {
		t.Errorf("kept %t: %.200v", ok, kept)
	}
	if own, _ := store.bound("ns/marked"); own.trim != "" {
		t.Errorf("kept %d bytes of an annotation", len(own.trim))
	}
}
