package kube

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
)

const (
	immediate = storagev1.VolumeBindingImmediate
	late      = storagev1.VolumeBindingWaitForFirstConsumer
)

func typesUID(s string) types.UID { return types.UID(s) }

func sorted(list []string) string {
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// decodeEvent reads what the real client sends: protobuf.
func decodeEvent(r *http.Request) (*corev1.Event, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	event := &corev1.Event{}
	_, _, err = serializer.NewCodecFactory(newScheme()).UniversalDeserializer().Decode(body, nil, event)
	return event, err
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// startWatcher runs a Watcher as one node does; it must end when it is told to.
func startWatcher(t *testing.T, client *Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- NewWatcher(client, slog.New(slog.DiscardHandler)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Error("it does not end")
		}
	})
}

func TestClusterID(t *testing.T) {
	_, client := newAPI(t)
	if id, err := ClusterID(t.Context(), client); err != nil || id != "cluster-uid" {
		t.Errorf("got %q, %v", id, err)
	}
	a, client := newAPI(t)
	a.Close()
	if id, err := ClusterID(t.Context(), client); err == nil || !strings.Contains(err.Error(), "kube-system") {
		t.Errorf("without an API server: %q, %v", id, err)
	}
}

func TestNewClientOutsideACluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	if _, err := NewClient(); err == nil || !strings.Contains(err.Error(), "KUBECONFIG") {
		t.Errorf("got %v", err)
	}
	t.Setenv("KUBECONFIG", t.TempDir()+"/absent")
	if _, err := NewClient(); err == nil || !strings.Contains(err.Error(), "absent") {
		t.Errorf("got %v", err)
	}
}

func TestOnlyOurImmediateClassesAreToldOf(t *testing.T) {
	a, client := newAPI(t)
	a.set("storageclasses", "late", class("late", DriverName, late))
	a.set("storageclasses", "theirs", class("theirs", "example.com", immediate))
	a.set("persistentvolumeclaims", "waits", claim("waits", "now", ""))
	startWatcher(t, client)
	eventually(t, "a watch on classes", func() bool { return a.watching("storageclasses") == 1 })
	a.set("storageclasses", "now", class("now", DriverName, immediate))
	a.set("storageclasses", "unsaid", class("unsaid", DriverName, ""))
	a.set("persistentvolumeclaims", "of-late", claim("of-late", "late", ""))
	a.set("persistentvolumeclaims", "bound", claim("bound", "now", "pv-1"))
	const want = "PersistentVolumeClaim ns/waits, StorageClass default/now, StorageClass default/unsaid"
	eventually(t, want, func() bool { return a.told() == want })
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.events {
		if e.Type != corev1.EventTypeWarning || e.Reason != "ImmediateBinding" || !strings.Contains(e.Message, "WaitForFirstConsumer") || e.InvolvedObject.UID == "" {
			t.Errorf("an event says %+v", e)
		}
	}
}

func TestClaimsAreWatchedOnlyWhileNeeded(t *testing.T) {
	a, client := newAPI(t)
	a.set("storageclasses", "late", class("late", DriverName, late))
	startWatcher(t, client)
	eventually(t, "a watch on classes", func() bool { return a.watching("storageclasses") == 1 })
	a.set("storageclasses", "now", class("now", DriverName, immediate))
	eventually(t, "a watch on claims", func() bool { return a.watching("persistentvolumeclaims") == 1 })
	a.set("persistentvolumeclaims", "later", claim("later", "now", ""))
	eventually(t, "an event on the claim", func() bool { return strings.Contains(a.told(), "ns/later") })
	a.remove("storageclasses", "now")
	eventually(t, "no watch on claims", func() bool { return a.watching("persistentvolumeclaims") == 0 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lists["persistentvolumeclaims"] != 1 {
		t.Errorf("claims were listed %d times", a.lists["persistentvolumeclaims"])
	}
}

func TestManyNodesGiveOneEvent(t *testing.T) {
	a, client := newAPI(t)
	for range 5 {
		startWatcher(t, client)
	}
	eventually(t, "five watches", func() bool { return a.watching("storageclasses") == 5 })
	now := class("now", DriverName, immediate)
	a.set("storageclasses", "now", now)
	posts := func() int { a.mu.Lock(); defer a.mu.Unlock(); return a.posts }
	eventually(t, "a post from each node", func() bool { return posts() == 5 })
	if a.told() != "StorageClass default/now" {
		t.Errorf("told of %s", a.told())
	}
	for range 3 { // changes, as by kubectl annotate
		a.set("storageclasses", "now", now)
	}
	a.set("storageclasses", "second", class("second", DriverName, immediate))
	eventually(t, "the second class is told of by all", func() bool { return posts() >= 10 })
	if posts() != 10 {
		t.Errorf("%d posts, want 10: one a node and class", posts())
	}
}

func TestAFailedEventIsTriedWhenTheObjectIsSeenAgain(t *testing.T) {
	a, client := newAPI(t)
	a.refuse = 1
	startWatcher(t, client)
	eventually(t, "a watch", func() bool { return a.watching("storageclasses") == 1 })
	now := class("now", DriverName, immediate)
	a.set("storageclasses", "now", now)
	a.set("storageclasses", "now", now)
	eventually(t, "the event", func() bool { return a.told() == "StorageClass default/now" })
}

func TestEventNamesAreValidAndTheObjectsOwn(t *testing.T) {
	long := strings.Repeat("c", 253)
	one := classEvent(class(long, DriverName, immediate), time.Now())
	if len(one.Name) > 253 || one.Namespace != "default" {
		t.Errorf("the name has %d bytes, in namespace %q", len(one.Name), one.Namespace)
	}
	anew := class(long, DriverName, immediate)
	anew.UID = "another"
	if classEvent(anew, time.Now()).Name == one.Name {
		t.Error("a class that was made anew has the same event name")
	}
}

func TestWhatIsKeptInMemory(t *testing.T) {
	c, err := stripClass(class("now", DriverName, immediate))
	if err != nil || c.(*storagev1.StorageClass).Labels != nil || !bindsImmediately(c.(*storagev1.StorageClass)) {
		t.Errorf("got %+v, %v", c, err)
	}
	full := claim("c", "now", "")
	full.Annotations = map[string]string{"long": "text"}
	p, err := stripClaim(full)
	if err != nil || p.(*corev1.PersistentVolumeClaim).Annotations != nil || *p.(*corev1.PersistentVolumeClaim).Spec.StorageClassName != "now" {
		t.Errorf("got %+v, %v", p, err)
	}
}
