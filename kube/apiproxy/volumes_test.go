package apiproxy_test

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func eventOf(t *testing.T, kind watch.EventType, c *corev1.PersistentVolumeClaim, version int) metav1.WatchEvent {
	t.Helper()
	c.ResourceVersion = strconv.Itoa(version)
	e := metav1.WatchEvent{Type: string(kind)}
	e.Object.Raw = encode(t, typed(c))
	return e
}

func volumeEvent(t *testing.T, kind watch.EventType, pv *corev1.PersistentVolume) metav1.WatchEvent {
	t.Helper()
	e := metav1.WatchEvent{Type: string(kind)}
	e.Object.Raw = encode(t, pv)
	return e
}

// watched returns the events that a client gets, as "TYPE name".
func watched(t *testing.T, address, path string) (got []string) {
	t.Helper()
	events, err := client(t, address).Get().AbsPath(path).Param("watch", "true").Watch(t.Context())
	must(t, err)
	defer events.Stop()
	for e := range events.ResultChan() {
		o, ok := e.Object.(metav1.Object)
		if !ok {
			t.Fatalf("got %+v", e)
		}
		got = append(got, string(e.Type)+" "+o.GetName())
	}
	return got
}

// TestClaimsOfTheNodesVolumes: a bound claim concerns the node of its volume, whatever its annotation says: csi-provisioner needs it as
// the source of a clone. Claims on other nodes do not concern it, though a clone names one.
func TestClaimsOfTheNodesVolumes(t *testing.T) {
	static, moved := bound("static", ""), bound("moved", "node-2")
	s := &apiServer{
		claims:  []corev1.PersistentVolumeClaim{*static, *moved, *bound("other", "node-2"), *cloneOf("other")},
		volumes: []corev1.PersistentVolume{*volumeOn("static", "node-1"), *volumeOn("moved", "node-1"), *volumeOn("other", "node-2")},
	}
	address := s.start(t)
	s.events = []metav1.WatchEvent{eventOf(t, watch.Modified, static, 8), eventOf(t, watch.Modified, bound("other", "node-2"), 9)}
	if got, want := watched(t, address, claims), []string{"MODIFIED static", "DELETED other"}; !slices.Equal(got, want) {
		t.Errorf("a watch without a list: %q, want %q", got, want)
	}
	if _, got := listed(t, address); !slices.Equal(got, []string{"static", "moved", "clone"}) {
		t.Errorf("the list: %q", got)
	}
	s.volumeEvents = []metav1.WatchEvent{volumeEvent(t, watch.Added, volumeOn("other", "node-1")), volumeEvent(t, watch.Modified, volumeOn("static", "node-2")),
		volumeEvent(t, watch.Deleted, volumeOn("moved", "node-1"))}
	watched(t, address, volumesPath)
	s.events = append(s.events, eventOf(t, watch.Modified, moved, 10))
	if got, want := watched(t, address, claims), []string{"DELETED static", "MODIFIED other", "DELETED moved"}; !slices.Equal(got, want) {
		t.Errorf("after the changes of the volumes: %q, want %q", got, want)
	}
	s.volumes = []corev1.PersistentVolume{*volumeOn("static", "node-1")}
	if _, got := listed(t, address); !slices.Equal(got, []string{"static", "clone"}) {
		t.Errorf("a list after a missed deletion: %q", got)
	}
}

// TestUnknownVolumes: without the list of PersistentVolumes the client gets an error, and no list that is too short.
func TestUnknownVolumes(t *testing.T) {
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("a", "node-1")}, volumesStatus: http.StatusServiceUnavailable}
	address := s.start(t)
	err := client(t, address).Get().AbsPath(claims).MaxRetries(0).Do(t.Context()).Error()
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Code != http.StatusServiceUnavailable {
		t.Errorf("got %v", err)
	}
	s.volumesStatus = 0
	if _, got := listed(t, address); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the next list: %q", got)
	}
}
