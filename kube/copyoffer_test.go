package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// offering offers everything in the same words, and notes for which clones.
type offering struct {
	offer  string
	clones *[]string
}

func (o offering) Offer(lvm.Snapshot) (string, error) { return o.offer, nil }

func (o offering) OfferClone(claim *corev1.PersistentVolumeClaim) {
	*o.clones = append(*o.clones, kubeclient.KeyOf(claim))
}

// snapshotsHere are the snapshots and volumes of a node.
type snapshotsHere struct{ Volumes }

func (snapshotsHere) Lookup(_ context.Context, id lvm.ID) (lvm.Volume, error) {
	return lvm.Volume{ID: id}, nil
}

func (snapshotsHere) LookupSnapshot(_ context.Context, id lvm.ID) (lvm.Snapshot, error) {
	return lvm.Snapshot{ID: id}, nil
}

// TestCopyOffer: the node of a snapshot says how to copy it when a claim of a class with restoreOnOtherNodes waits on another node, and never selects
// itself for such a claim. Without moves, or the parameter, it selects itself.
func TestCopyOffer(t *testing.T) {
	const offer = "how to copy it"
	for name, test := range map[string]struct {
		class   string // restoreOnOtherNodes
		moves   bool
		node    string // selected
		said    string // before
		modes   []corev1.PersistentVolumeAccessMode
		job     bool
		patches []string
	}{
		"another node":                {"true", true, "node-2", "", nil, true, []string{"volumesnapshotcontents " + offer}},
		"it is said already":          {"true", true, "node-2", offer, nil, true, nil},
		"another process said it":     {"true", true, "node-2", "old", nil, true, []string{"volumesnapshotcontents " + offer}},
		"no node yet":                 {"true", true, "", "", nil, false, nil},
		"this node":                   {"true", true, "node-1", "", nil, true, nil},
		"a class without it":          {"false", true, "node-2", "", nil, true, []string{"persistentvolumeclaims node-1"}},
		"a read-only copy":            {"true", true, "node-2", "", []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}, true, []string{"persistentvolumeclaims node-1"}},
		"a driver that does not move": {"true", false, "node-2", "", nil, true, []string{"persistentvolumeclaims node-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRestoring()
			if test.node != "" {
				r.claim.Annotations = map[string]string{api.AnnotationSelectedNode: test.node}
			}
			r.claim.Spec.AccessModes = test.modes
			var patches []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch {
				case q.Method == http.MethodPatch:
					body, _ := io.ReadAll(q.Body)
					patches = append(patches, patched(q.URL.Path, body))
					kubetest.Reply(w, http.StatusOK, r.claim)
				case strings.HasSuffix(q.URL.Path, "/volumesnapshots/nightly"):
					kubetest.Reply(w, http.StatusOK, r.snapshot)
				case strings.HasSuffix(q.URL.Path, "/pods"):
					kubetest.Reply(w, http.StatusOK, &corev1.PodList{})
				default:
					kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Event"})
				}
			}))
			config := Config{Client: kubetest.ClientOf(t, server), Node: "node-1", Volumes: snapshotsHere{}}
			if test.moves {
				config.Copies = offering{offer: offer}
			}
			a := NewAgent(config)
			a.restores.Do(func() {}) // no watch
			class := kubetest.Class("thin", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
			class.Parameters = map[string]string{api.ParameterRestoreOnOtherNodes: test.class}
			must(t, a.classes.Add(class))
			r.contents[0].Annotations = map[string]string{}
			if test.said != "" {
				r.contents[0].Annotations[api.AnnotationCopyOffer] = test.said
			}
			must(t, a.contents.Add(r.contents[0]))
			must(t, a.claims.Add(r.claim))
			job, ok := a.jobForClaim(t.Context(), "ns/copy")
			if ok != test.job {
				t.Fatalf("there is a job: %v", ok)
			}
			if ok {
				if _, err := job.do(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if !slices.Equal(patches, test.patches) {
				t.Errorf("patches %q, want %q", patches, test.patches)
			}
		})
	}
}

// patched describes a patch: the resource, and the value that one of the two annotations gets.
func patched(path string, body []byte) string {
	var change struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &change) // what is not JSON sets nothing
	resource := strings.Split(path, "/")
	return resource[len(resource)-2] + " " + change.Metadata.Annotations[api.AnnotationCopyOffer] + change.Metadata.Annotations[api.AnnotationSelectedNode]
}

// TestCloneOffer: the node of a claim that is cloned protects it for a clone that the scheduler places, before a node is selected, so that csi-provisioner
// on any node sees it. When another node is selected, a snapshot is asked for. Other nodes do nothing. Without moves, or the parameter, the node
// selects itself.
func TestCloneOffer(t *testing.T) {
	const protects = "data: x, " + api.FinalizerCloned
	for name, test := range map[string]struct {
		class   string // restoreOnOtherNodes
		moves   bool
		at      string // the agent's node
		node    string // selected
		said    []string
		patches []string
		clones  []string
	}{
		"another node":                {"true", true, "node-1", "node-2", nil, []string{protects}, []string{"ns/copy"}},
		"it is protected already":     {"true", true, "node-1", "node-2", []string{"x", api.FinalizerCloned}, nil, []string{"ns/copy"}},
		"no node yet":                 {"true", true, "node-1", "", nil, []string{protects}, nil},
		"this node":                   {"true", true, "node-1", "node-1", nil, nil, nil},
		"a volume that is elsewhere":  {"true", true, "node-3", "node-2", nil, nil, nil},
		"a class without it":          {"false", true, "node-1", "node-2", nil, []string{"copy: node-1"}, nil},
		"a driver that does not move": {"true", false, "node-1", "node-2", nil, []string{"copy: node-1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			claim, origin, pv := kubetest.Claim("copy", "thin", ""), kubetest.Claim("data", "thin", "pvc-data"), kubetest.VolumeOn("node-1", "data")
			claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
			origin.Finalizers = []string{"x"}
			if test.said != nil {
				origin.Finalizers = test.said
			}
			if test.node != "" {
				claim.Annotations = map[string]string{api.AnnotationSelectedNode: test.node}
			}
			var patches, clones []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				switch {
				case q.Method == http.MethodPatch:
					body, _ := io.ReadAll(q.Body)
					patches = append(patches, finalized(q.URL.Path, body))
					kubetest.Reply(w, http.StatusOK, origin)
				case strings.HasSuffix(q.URL.Path, "/persistentvolumeclaims/data"):
					kubetest.Reply(w, http.StatusOK, origin)
				case strings.HasSuffix(q.URL.Path, "/persistentvolumes/pvc-data"):
					kubetest.Reply(w, http.StatusOK, pv)
				case strings.HasSuffix(q.URL.Path, "/persistentvolumes"):
					kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeList", "items": []any{pv}})
				case strings.HasSuffix(q.URL.Path, "/pods"):
					kubetest.Reply(w, http.StatusOK, &corev1.PodList{})
				default:
					kubetest.Reply(w, http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "Event"})
				}
			}))
			config := Config{Client: kubetest.ClientOf(t, server), Node: test.at, Volumes: snapshotsHere{}}
			if test.moves {
				config.Copies = offering{clones: &clones}
			}
			a := NewAgent(config)
			class := kubetest.Class("thin", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
			class.Parameters = map[string]string{api.ParameterRestoreOnOtherNodes: test.class}
			must(t, a.classes.Add(class))
			must(t, a.claims.Add(claim))
			if test.at == "node-1" {
				a.claims.setHere(map[string]bool{"pvc-data": true})
				must(t, a.claims.Add(origin))
			}
			if job, ok := a.jobForClaim(t.Context(), "ns/copy"); !ok {
				t.Error("there is no job")
			} else if _, err := job.do(t.Context()); err != nil {
				t.Error(err)
			}
			if !slices.Equal(patches, test.patches) || !slices.Equal(clones, test.clones) {
				t.Errorf("patches %q, want %q; clones %q, want %q", patches, test.patches, clones, test.clones)
			}
		})
	}
}

// finalized describes a patch: the name, and the finalizers or the selected node that it sets.
func finalized(path string, body []byte) string {
	var change struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
			Finalizers  []string          `json:"finalizers"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(body, &change) // what is not JSON sets nothing
	return path[strings.LastIndex(path, "/")+1:] + ": " + strings.Join(change.Metadata.Finalizers, ", ") + change.Metadata.Annotations[api.AnnotationSelectedNode]
}

// TestExcludedCopyNamesTheParameter: the event of a restore or clone that no pod can use says which class would help; of a read-only copy none would.
func TestExcludedCopyNamesTheParameter(t *testing.T) {
	claim := kubetest.Claim("copy", "thin", "")
	if says := orElsewhere(claim); !strings.Contains(says, api.ParameterRestoreOnOtherNodes) {
		t.Errorf("%q", says)
	}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
	if says := orElsewhere(claim); says != "" {
		t.Errorf("%q", says)
	}
}
