package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

// movesServer is an API server with the objects of facts. Drivers' pods cannot be listed there.
type movesServer struct {
	*httptest.Server
	facts  *moveFacts
	refuse func(r *http.Request) bool // a request that the user may not send
	agents bool                       // a claim that is annotated has moved at once

	mu      sync.Mutex
	patches []string // query and body
}

func serveMoves(t *testing.T, f *moveFacts) *movesServer {
	s := &movesServer{facts: f, refuse: func(*http.Request) bool { return false }}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		answer := s.answer(r)
		if answer == nil {
			w.WriteHeader(http.StatusForbidden)
			answer = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: "not for you"}
		}
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("KUBECONFIG", "/dev/null")
	return s
}

func (s *movesServer) answer(r *http.Request) any {
	if s.refuse(r) {
		return nil
	}
	list := func(items any) any { return map[string]any{"kind": "List", "apiVersion": "v1", "items": items} }
	switch path := strings.TrimPrefix(r.URL.Path, "/api/v1/"); {
	case r.Method == http.MethodPatch:
		body, _ := io.ReadAll(r.Body)
		s.patches = append(s.patches, fmt.Sprintf("%s%s %s", r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], map[bool]string{true: " dry run"}[r.URL.Query().Get("dryRun") == "All"], body))
		if s.agents && r.URL.Query().Get("dryRun") == "" {
			claim, pv := s.facts.of(r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
			to := map[bool]string{true: "node-3", false: "node-2"}[bytes.Contains(body, []byte("node-3"))]
			claim.Annotations[api.AnnotationMoveTo] = to
			moveTo(pv, to)
		}
		return corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}}
	case strings.HasPrefix(path, "namespaces/shop/persistentvolumeclaims/"):
		claim, _ := s.facts.of(strings.TrimPrefix(path, "namespaces/shop/persistentvolumeclaims/"))
		claim = claim.DeepCopy()
		claim.TypeMeta = metav1.TypeMeta{Kind: "PersistentVolumeClaim", APIVersion: "v1"}
		return claim
	case strings.HasPrefix(path, "persistentvolumes/"):
		_, pv := s.facts.of(strings.TrimPrefix(path, "persistentvolumes/pvc-uid-"))
		pv = pv.DeepCopy()
		pv.TypeMeta = metav1.TypeMeta{Kind: "PersistentVolume", APIVersion: "v1"}
		return pv
	case path == "namespaces/shop/persistentvolumeclaims", path == "persistentvolumeclaims":
		return list(s.facts.claims)
	case path == "pods" && r.URL.Query().Get("labelSelector") == "", path == "namespaces/shop/pods":
		return list(s.facts.pods)
	case path == "persistentvolumes":
		return list(s.facts.volumes)
	case path == "nodes":
		return list(s.facts.nodes)
	case strings.HasSuffix(path, "/storageclasses"):
		return list(s.facts.classes)
	case strings.HasSuffix(path, "/csinodes"):
		return list(s.facts.csiNodes)
	case strings.HasSuffix(path, "/csistoragecapacities"):
		return list(s.facts.published)
	}
	return nil
}

// run runs the plugin, and returns what it prints.
func (s *movesServer) run(t *testing.T, stdin string, args ...string) (out string, err error) {
	t.Helper()
	root, text := newRoot(), &bytes.Buffer{}
	root.SetOut(text)
	root.SetErr(text)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(append(args, "-s", s.URL, "-n", "shop"))
	err = root.ExecuteContext(t.Context())
	return text.String(), err
}

// TestMoveWrites: the annotations of all claims are checked by the API server before the first is written, and name the claim by its UID.
func TestMoveWrites(t *testing.T) {
	s := serveMoves(t, movable())
	out, err := s.run(t, "", "move", "wal", "--to", "node-2")
	must(t, err)
	golden(t, "move.txt", []byte(out))
	const data, wal = `{"metadata":{"annotations":{"nodelvm.io/move-to":"node-2","nodelvm.io/move-with":"wal"},"uid":"uid-data"}}`, `{"metadata":{"annotations":{"nodelvm.io/move-to":"node-2","nodelvm.io/move-with":"data"},"uid":"uid-wal"}}`
	if want := []string{"data dry run " + data, "wal dry run " + wal, "data " + data, "wal " + wal}; !slices.Equal(s.patches, want) {
		t.Errorf("the requests are %q", s.patches)
	}
	s.patches = nil
	if out, err = s.run(t, "", "move", "wal", "--to", "node-2", "--dry-run"); err != nil || len(s.patches) != 2 || !strings.Contains(s.patches[1], "dry run") || !strings.Contains(out, "would run: kubectl -n shop annotate pvc wal ") || strings.Contains(out, "next:") {
		t.Errorf("%v, %q: %s", err, s.patches, out)
	}
}

// TestRefusedWrites: if one claim may not be written, none is; and a refused plan is not written.
func TestRefusedWrites(t *testing.T) {
	s := serveMoves(t, movable())
	s.refuse = func(r *http.Request) bool {
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/wal")
	}
	_, err := s.run(t, "", "move", "data", "--to", "node-2")
	if err == nil || !strings.Contains(err.Error(), "nothing was changed: claim shop/wal cannot be annotated: not for you; a move needs the right to patch persistentvolumeclaims") || len(s.patches) != 1 {
		t.Errorf("%v, %q", err, s.patches)
	}
	s.patches = nil
	out, err := s.run(t, "", "move", "data", "--to", "node-9")
	if err == nil || !strings.HasPrefix(err.Error(), "nothing was changed: node node-9 cannot have the volumes of data, wal: the cluster has no such node") || len(s.patches) != 0 || out != "" {
		t.Errorf("%v, %q: %s", err, s.patches, out)
	}
	s.facts.nodes[1].Spec.Unschedulable, s.facts.nodes[2].Spec.Unschedulable = true, true
	out, err = s.run(t, "", "move", "data", "--anywhere")
	if err == nil || !strings.Contains(err.Error(), "no other node can have the volumes of data, wal") || !strings.Contains(out, "passed over: node-3 for data, wal: the node is cordoned") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestDrainAsks: nothing is written before the user says yes. A user who may not list nodes cannot drain one.
func TestDrainAsks(t *testing.T) {
	s := serveMoves(t, movable())
	out, err := s.run(t, "n\n", "drain", "node-1", "--wait=false")
	if err == nil || err.Error() != errNotConfirmed.Error() || len(s.patches) != 0 || !strings.Contains(out, "Move 3 volumes (13 GiB, 13 GiB to copy, about 2m13s at the rate of one copy) from node node-1? [y/N]") {
		t.Errorf("%v, %q: %s", err, s.patches, out)
	}
	if out, err = s.run(t, "y\n", "drain", "node-1", "--wait=false"); err != nil || len(s.patches) != 6 || !strings.Contains(out, "kubectl -n shop delete pod web") {
		t.Errorf("%v, %q: %s", err, s.patches, out)
	}
	if _, err := s.run(t, "", "drain", "node-9"); err == nil || !strings.Contains(err.Error(), `the cluster has no node "node-9"`) {
		t.Errorf("%v", err)
	}
	s.refuse = func(r *http.Request) bool { return r.URL.Path == "/api/v1/nodes" }
	if _, err := s.run(t, "", "drain", "node-1"); err == nil || !strings.Contains(err.Error(), "a drain needs the right to list PersistentVolumes, nodes and CSIStorageCapacities: nodes: ") {
		t.Errorf("%v", err)
	}
}

// TestDrainWaits: a drain ends when the last volume has moved, and its exit status says whether some stay.
func TestDrainWaits(t *testing.T) {
	s := serveMoves(t, movable())
	s.agents = true
	out, err := s.run(t, "", "drain", "node-1", "--yes")
	if err != nil || !strings.Contains(out, " shop/wal is on node-2\n") || !strings.HasSuffix(out, "All claims' volumes have left node-1. Before you remove it: kubectl nodelvm drain-check node-1\n") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := s.run(t, "", "drain", "node-1"); err != nil || !strings.HasPrefix(out, "No claims to move.\n") {
		t.Errorf("again: %v: %s", err, out)
	}
	s = serveMoves(t, movable())
	s.agents, s.facts.pods[1].OwnerReferences = true, nil
	out, err = s.run(t, "", "drain", "node-1", "--yes")
	if !errors.Is(err, errFound) || !strings.Contains(out, "stays on node-1: pod shop/web uses the volume on node node-1 and has no controller") || !strings.Contains(out, "shop/data is on node-2") {
		t.Errorf("with a pod that stays: %v: %s", err, out)
	}
}

// TestUserOfOneNamespace: such a user can move and cancel, and the output says what was not checked.
func TestUserOfOneNamespace(t *testing.T) {
	s := serveMoves(t, movable())
	s.refuse = func(r *http.Request) bool { return !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/shop/") }
	out, err := s.run(t, "", "move", "data", "--to", "node-2")
	if err != nil || len(s.patches) != 4 || !strings.Contains(out, "not read: PersistentVolumes: not for you\n") {
		t.Errorf("%v, %q: %s", err, s.patches, out)
	}
	if _, err := s.run(t, "", "move", "data", "--anywhere"); err == nil || !strings.Contains(err.Error(), "give --to NODE") {
		t.Errorf("%v", err)
	}
	s.facts.claims[0].Annotations[api.AnnotationMoveTo], s.patches = "node-2", nil
	if _, err := s.run(t, "", "move", "data", "--cancel"); err != nil || len(s.patches) != 2 || s.patches[1] != `data {"metadata":{"annotations":{"nodelvm.io/move-to":null},"uid":"uid-data"}}` {
		t.Errorf("%v, %q", err, s.patches)
	}
	if out, err := s.run(t, "", "moves"); err != nil || !strings.Contains(out, "shop/data") {
		t.Errorf("%v: %s", err, out)
	}
}
