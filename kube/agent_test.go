package kube

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

const (
	immediate = storagev1.VolumeBindingImmediate
	late      = storagev1.VolumeBindingWaitForFirstConsumer
)

func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// decodeEvent decodes the protobuf that the real client sends.
func decodeEvent(r *http.Request) (*corev1.Event, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	event := &corev1.Event{}
	_, _, err = serializer.NewCodecFactory(kubeclient.NewScheme()).UniversalDeserializer().Decode(body, nil, event)
	return event, err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	wait.For(t, time.Minute, what, holds)
}

// startAgent runs an Agent until the test ends; Run must return then.
func startAgent(t *testing.T, client *kubeclient.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(wait.Limit(time.Minute)):
			t.Error("Run does not return")
		}
	})
}

func TestClusterID(t *testing.T) {
	_, client := newAPI(t)
	if id, err := kubeclient.ClusterID(t.Context(), client); err != nil || id != "cluster-uid" {
		t.Errorf("got %q, %v", id, err)
	}
	a, client := newAPI(t)
	a.Close()
	if id, err := kubeclient.ClusterID(t.Context(), client); err == nil || !strings.Contains(err.Error(), "kube-system") {
		t.Errorf("without an API server: %q, %v", id, err)
	}
}

func TestNewClientOutsideACluster(t *testing.T) {
	for _, variable := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBECONFIG"} {
		t.Setenv(variable, "")
	}
	if _, err := kubeclient.NewClient(); !errors.Is(err, kubeclient.ErrNoServer) || !strings.Contains(err.Error(), "KUBECONFIG") || strings.Contains(err.Error(), "--") {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/absent")
	if _, err := kubeclient.NewClient(); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v", err)
	}
}

func TestWarningOfImmediateClassesOfThisDriver(t *testing.T) {
	a, client := newAPI(t)
	a.set("storageclasses", "late", kubetest.Class("late", api.DriverName, late))
	a.set("storageclasses", "theirs", kubetest.Class("theirs", "example.com", immediate))
	a.set("persistentvolumeclaims", "waits", kubetest.Claim("waits", "now", ""))
	startAgent(t, client)
	eventually(t, "a watch on classes", func() bool { return a.watching("storageclasses") == 1 })
	a.set("storageclasses", "now", kubetest.Class("now", api.DriverName, immediate))
	a.set("storageclasses", "unsaid", kubetest.Class("unsaid", api.DriverName, ""))
	a.set("persistentvolumeclaims", "of-late", kubetest.Claim("of-late", "late", ""))
	a.set("persistentvolumeclaims", "bound", kubetest.Claim("bound", "now", "pv-1"))
	const want = "PersistentVolumeClaim ns/waits, StorageClass default/now, StorageClass default/unsaid"
	eventually(t, want, func() bool { return a.eventObjects() == want })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if e.Type != corev1.EventTypeWarning || e.Reason != "ImmediateBindingUnsupported" || !strings.Contains(e.Message, "WaitForFirstConsumer") || e.InvolvedObject.UID == "" {
			t.Errorf("an event says %+v", e)
		}
	}
}

func TestClassCreatedAfterItsClaims(t *testing.T) {
	a, client := newAPI(t)
	a.set("persistentvolumeclaims", "before", kubetest.Claim("before", "now", ""))
	startAgent(t, client)
	eventually(t, "both watches", func() bool {
		return a.watching("storageclasses") == 1 && a.watching("persistentvolumeclaims") == 1
	})
	a.set("storageclasses", "now", kubetest.Class("now", api.DriverName, immediate))
	eventually(t, "an event on the claim", func() bool { return strings.Contains(a.eventObjects(), "ns/before") })
	a.remove("storageclasses", "now")
	a.set("storageclasses", "last", kubetest.Class("last", api.DriverName, immediate)) // an event about it proves that the agent has processed the deletion
	eventually(t, "an event on the last class", func() bool { return strings.Contains(a.eventObjects(), "default/last") })
	a.set("persistentvolumeclaims", "after", kubetest.Claim("after", "now", ""))
	a.set("persistentvolumeclaims", "of-last", kubetest.Claim("of-last", "last", ""))
	eventually(t, "an event on the last claim", func() bool { return strings.Contains(a.eventObjects(), "ns/of-last") })
	if strings.Contains(a.eventObjects(), "ns/after") {
		t.Error("a claim gets an event about a deleted class")
	}
}

func TestNodesShareOneEvent(t *testing.T) {
	a, client := newAPI(t)
	for range 5 {
		startAgent(t, client)
	}
	eventually(t, "five watches", func() bool { return a.watching("storageclasses") == 5 })
	now := kubetest.Class("now", api.DriverName, immediate)
	a.set("storageclasses", "now", now)
	posts := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.posts }
	eventually(t, "a post from each node", func() bool { return posts() == 5 })
	if a.eventObjects() != "StorageClass default/now" {
		t.Errorf("events on %s", a.eventObjects())
	}
	for range 3 { // unrelated changes, as by kubectl annotate
		a.set("storageclasses", "now", now)
	}
	a.set("storageclasses", "second", kubetest.Class("second", api.DriverName, immediate))
	eventually(t, "the second class is told of by all", func() bool { return posts() >= 10 })
	if posts() != 10 {
		t.Errorf("%d posts, want 10: one a node and class", posts())
	}
}

// TestWarningIsRepeated: the API server deletes an event after an hour, and a pod may wait for longer.
func TestWarningIsRepeated(t *testing.T) {
	a, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	warn := func() { agent.Warn(t.Context(), "ns", "data", "uid", "PodVolumesOnDifferentNodes", "text") }
	told := func() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.events) }
	pass := func(d time.Duration) {
		for name, was := range agent.events.Counts {
			agent.events.Counts[name] = kubeclient.EventCount{Times: was.Times, Last: was.Last.Add(-d)}
		}
	}
	warn()
	clear(a.events) // as the API server does after an hour
	pass(10 * time.Minute)
	warn()
	if n := told(); n != 0 {
		t.Errorf("%d events: every attempt writes one", n)
	}
	pass(50 * time.Minute)
	warn()
	if n := told(); n != 1 {
		t.Errorf("%d events, want the warning again", n)
	}
}

type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestImmediateBindingWarningIsRepeated: the agent repeats the warnings about a class and its claim while they exist.
func TestImmediateBindingWarningIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posts := 0
		client, err := kubeclient.NewClientFor(&rest.Config{Host: "http://api", Transport: trip(func(*http.Request) (*http.Response, error) {
			posts++
			return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
		})})
		must(t, err)
		agent := NewAgent(Config{Client: client, Node: "node-1", Log: slog.New(slog.DiscardHandler)})
		defer agent.queue.ShutDown()
		_ = agent.classes.Add(kubetest.Class("now", api.DriverName, immediate)) // Add never fails
		_ = agent.claims.Add(kubetest.Claim("waits", "now", ""))
		for _, want := range []int{2, 2, 4} { // at once, after 45 minutes, after 90
			for agent.queue.Len() > 0 {
				agent.next(t.Context())
			}
			if posts != want {
				t.Errorf("%d warnings, want %d", posts, want)
			}
			time.Sleep(45 * time.Minute)
			synctest.Wait()
		}
	})
}

func TestFailedEventIsRetried(t *testing.T) {
	a, client := newAPI(t)
	a.refuse = 1
	startAgent(t, client)
	eventually(t, "a watch", func() bool { return a.watching("storageclasses") == 1 })
	a.set("storageclasses", "now", kubetest.Class("now", api.DriverName, immediate))
	eventually(t, "the event", func() bool { return a.eventObjects() == "StorageClass default/now" })
}

// TestFailuresAreRetriedWithinHalfAMinute: no event announces free capacity or a returned disk.
func TestFailuresAreRetriedWithinHalfAMinute(t *testing.T) {
	a := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1"})
	for range 50 {
		a.backoff.Next("job", time.Now())
	}
	if wait := a.backoff.Get("job"); wait > 30*time.Second {
		t.Errorf("after 50 failures it waits %s", wait)
	}
}

func TestEventNames(t *testing.T) {
	long := strings.Repeat("c", 253)
	recorder := &kubeclient.EventRecorder{Node: "node-1"}
	name := func(c *storagev1.StorageClass, reason string) string {
		event := recorder.Object(kubeclient.Event{About: kubeclient.AboutClass(c), Reason: reason}, time.Now())
		if wrong := validation.IsDNS1123Subdomain(event.Name); len(wrong) > 0 || event.Namespace != "default" {
			t.Errorf("%s in namespace %q: %v", event.Name, event.Namespace, wrong)
		}
		return event.Name
	}
	name(kubetest.Class(strings.Repeat("c", 199)+"-"+strings.Repeat("c", 53), api.DriverName, immediate), "A")
	one, anew := kubetest.Class(long, api.DriverName, immediate), kubetest.Class(long, api.DriverName, immediate)
	anew.UID = "another"
	first := name(one, "A")
	if again := name(one, "A"); again != first || name(one, "B") == first || name(anew, "A") == first {
		t.Error("an event's name does not depend only on object and reason")
	}
}

func TestStoresKeepOnlyUsedFields(t *testing.T) {
	c := stripClass(kubetest.Class("now", api.DriverName, immediate))
	if c.Labels != nil || !bindsImmediately(c) {
		t.Errorf("of a class: %+v", c)
	}
	store := newClaimStore("node-1", func(string) {})
	add := func(name, volume, selected string) {
		full := kubetest.Claim(name, "thin", volume)
		full.Annotations = map[string]string{"long": "text", api.AnnotationSelectedNode: selected}
		must(t, store.Add(full))
	}
	add("waits", "", "")
	add("own", "pv-1", "node-1")
	add("foreign", "pv-2", "node-2")
	kept, ok := store.waiting("ns/waits")
	if !ok || len(kept.Annotations) != 1 || *kept.Spec.StorageClassName != "thin" || len(store.open) != 1 || len(store.own) != 1 {
		t.Errorf("kept: %+v, %+v", store.open, store.own)
	}
	add("waits", "pv-3", "node-2") // bound elsewhere
	if err := store.Delete(kubetest.Claim("own", "thin", "pv-1")); err != nil || len(store.open)+len(store.own) != 0 {
		t.Errorf("left: %+v, %+v, %v", store.open, store.own, err)
	}
	add("own", "pv-1", "node-1")
	if err := store.Replace(nil, ""); err != nil || len(store.own) != 0 {
		t.Errorf("left after a listing: %+v, %v", store.own, err)
	}
}
