package apiproxy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodelvm/nodelvm/api"
)

// TestLargeClaimFailsAlone: the API server stores a source's name of any length. The client gets all other claims, and one that grew
// as a deletion.
func TestLargeClaimFailsAlone(t *testing.T) {
	large := cloneOf(strings.Repeat("\u00e9", api.MaxObject/2))
	large.Name, large.Namespace = "large", "tenant"
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("a", "node-1"), *large, *cloneOf("a")}}
	s.events = []metav1.WatchEvent{eventOf(t, watch.Added, large, 8), eventOf(t, watch.Modified, large, 9), eventOf(t, watch.Deleted, large, 10), eventOf(t, watch.Added, bound("b", "node-1"), 11)}
	address := s.start(t)
	if _, got := listed(t, address); !slices.Equal(got, []string{"a", "clone"}) {
		t.Errorf("the list: %q", got)
	}
	if got, want := watched(t, address, claims), []string{"DELETED large", "DELETED large", "ADDED b"}; !slices.Equal(got, want) {
		t.Errorf("the watch: %q, want %q", got, want)
	}
}

// TestNoRequestForAClaim: what tenants write into claims causes no request, and the answer has each claim once.
func TestNoRequestForAClaim(t *testing.T) {
	s := &apiServer{claims: []corev1.PersistentVolumeClaim{*bound("source", "node-1")}}
	stored := s.claims[0].Size()
	for i, source := range []string{"source", "source", "../../other/secrets/key", "..", strings.Repeat("x", 10_000), "missing"} {
		c := cloneOf(source)
		c.Name = fmt.Sprintf("clone-%d", i)
		s.claims = append(s.claims, *c)
		s.events = append(s.events, eventOf(t, watch.Added, c, 8+i))
		stored += c.Size()
	}
	address := s.start(t)
	answer, err := client(t, address).Get().AbsPath(claims).Do(t.Context()).Raw()
	must(t, err)
	if len(answer) > stored+1000 {
		t.Errorf("the API server has %d bytes of claims, the client gets %d", stored, len(answer))
	}
	if got := watched(t, address, claims); len(got) != len(s.events) {
		t.Errorf("the watch: %q", got)
	}
	want := []string{"GET " + volumesPath + " Bearer sidecar", "GET " + claims + " Bearer sidecar", "GET " + claims + " Bearer sidecar"}
	if !slices.Equal(s.heard, want) {
		t.Errorf("the API server got the requests %q", s.heard)
	}
}

// TestLargeSnapshot: the client gets no VolumeSnapshot of many bytes, and all others.
func TestLargeSnapshot(t *testing.T) {
	large := snapshot("large", protected, strings.Repeat("x", api.MaxObject))
	s := &snapshotAPI{answer: fmt.Sprintf(listOfThese, large+","+snapshot("a", protected))}
	client := s.start(t)
	list, err := client.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != 1 || list.Items[0].GetName() != "a" {
		t.Errorf("the list has %d items", len(list.Items))
	}
	s.answer = `{"type":"ADDED","object":` + large + `}{"type":"MODIFIED","object":` + large + `}`
	events, err := client.Watch(t.Context(), metav1.ListOptions{})
	must(t, err)
	defer events.Stop()
	e := <-events.ResultChan()
	if o, ok := e.Object.(metav1.Object); e.Type != watch.Deleted || !ok || len(o.GetFinalizers()) > 0 {
		t.Errorf("got %s %.200v", e.Type, e.Object)
	}
}
