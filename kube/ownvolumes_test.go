package kube

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// rebound returns ns/data, which requests 2 GiB and has the volume pvc-data of node-1, although node-2 is selected for it: a volume
// populator or an admin has bound it.
func rebound() *corev1.PersistentVolumeClaim {
	c := growingClaim()
	c.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2", api.AnnotationTrimInterval: "2h"}
	return c
}

// volumeOnDisk is the volume of ns/data as node-1 finds it on its disks. It was created for another claim.
func volumeOnDisk() lvm.ManagedVolume {
	id, err := lvm.ParseID(kubetest.VolumeOn("node-1", "data").Spec.CSI.VolumeHandle)
	if err != nil {
		panic(err)
	}
	return lvm.ManagedVolume{Volume: lvm.Volume{ID: id, UUID: "u", Name: "pvc-data", Claim: "ns/prime-1"}}
}

// agentOf returns an agent of a node with these volumes on its disks, and the requests that it sends.
func agentOf(t *testing.T, node string, onDisk *[]lvm.ManagedVolume, disks Volumes) (agent *Agent, sent func() []string) {
	t.Helper()
	data, pv := rebound(), kubetest.VolumeOn("node-1", "data")
	list := &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{*pv}}
	list.APIVersion, list.Kind = "v1", "PersistentVolumeList"
	event := &corev1.Event{}
	event.APIVersion, event.Kind = "v1", "Event"
	client, sent := kubetest.RecordedClient(t, map[string]any{
		"GET /api/v1/persistentvolumes": list, "GET /api/v1/persistentvolumes/pvc-data": pv, "PATCH /api/v1/persistentvolumes/pvc-data": pv,
		"GET /api/v1/namespaces/ns/persistentvolumeclaims/data": data, "PATCH /api/v1/namespaces/ns/persistentvolumeclaims/data/status": data,
		"PATCH /api/v1/namespaces/ns/persistentvolumeclaims/copy": kubetest.Claim("copy", "late", ""), "POST /api/v1/namespaces/ns/events": event,
	})
	return NewAgent(Config{Client: client, Node: node, Volumes: disks, Log: slog.New(slog.DiscardHandler),
		Holdings: func(context.Context) (lvm.ManagedVolumes, error) {
			return lvm.ManagedVolumes{Owned: *onDisk, Groups: map[lvm.VGUUID]bool{kubetest.TestVG: true}}, nil
		}}), sent
}

// TestBoundVolumeIsWhereItsAffinitySays: another node than the volume's is selected for a bound claim. The node with the volume expands
// it, trims it, reports its conditions on the claim, and selects itself for clones. The selected node does nothing.
func TestBoundVolumeIsWhereItsAffinitySays(t *testing.T) {
	for name, arrives := range map[string]func(a *Agent, onDisk *[]lvm.ManagedVolume) error{
		"the driver starts": func(a *Agent, onDisk *[]lvm.ManagedVolume) error {
			*onDisk = []lvm.ManagedVolume{volumeOnDisk()}
			a.learnVolumes(t.Context())
			return a.claims.Add(stripClaim(rebound()))
		},
		"the node created the volume for another claim": func(a *Agent, onDisk *[]lvm.ManagedVolume) error {
			prime := kubetest.Claim("prime-1", "late", "pvc-data")
			prime.Annotations = map[string]string{api.AnnotationSelectedNode: "node-1"}
			if err := a.claims.Add(stripClaim(prime)); err != nil {
				return err
			}
			*onDisk = []lvm.ManagedVolume{volumeOnDisk()}
			if err := a.claims.Delete(prime); err != nil {
				return err
			}
			return a.claims.Add(stripClaim(rebound()))
		},
		"the volume comes later": func(a *Agent, onDisk *[]lvm.ManagedVolume) error {
			if err := a.claims.Add(stripClaim(rebound())); err != nil {
				return err
			}
			*onDisk = []lvm.ManagedVolume{volumeOnDisk()}
			_, ok := a.jobForClaim(t.Context(), "ns/data") // that it requests more
			if !ok {
				t.Error("the claim waits for no expansion")
			}
			return nil
		},
		"an audit": func(a *Agent, onDisk *[]lvm.ManagedVolume) error {
			if err := a.claims.Add(stripClaim(rebound())); err != nil {
				return err
			}
			*onDisk = []lvm.ManagedVolume{volumeOnDisk()}
			return a.auditOnce(t.Context())
		},
	} {
		t.Run(name, func(t *testing.T) {
			disks, onDisk := &allThere{}, []lvm.ManagedVolume{}
			agent, sent := agentOf(t, "node-1", &onDisk, disks)
			_ = agent.classes.Add(kubetest.Class("late", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer))
			must(t, arrives(agent, &onDisk))
			job, ok := agent.jobForClaim(t.Context(), "ns/data")
			if !ok {
				t.Fatal("no expansion")
			}
			if _, err := job.do(t.Context()); err != nil || disks.extended != 1 {
				t.Errorf("%d expansions, %v; requests %q", disks.extended, err, sent())
			}
			if trim, class := agent.TrimInterval("pvc-data"), agent.ClassOf("pvc-data"); trim != "2h" || class != "late" {
				t.Errorf("trim interval %q, class %q", trim, class)
			}
			if about := agent.concerned(lvm.Condition{Volume: volumeOnDisk().Volume}); about.Name != "data" || about.UID != rebound().UID {
				t.Errorf("a condition is reported on %s %s", about.Kind, about.Name)
			}
			copied := kubetest.Claim("copy", "late", "")
			copied.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(""), Kind: kubeclient.KindClaim, Name: "data"}
			if here, _, err := agent.holds(t.Context(), sourceOf(copied)); err != nil || !here {
				t.Errorf("the source of a clone is here: %t, %v", here, err)
			}
		})
	}
	t.Run("the selected node", func(t *testing.T) {
		disks, onDisk := &allThere{}, []lvm.ManagedVolume{}
		agent, sent := agentOf(t, "node-2", &onDisk, disks)
		must(t, agent.claims.Add(stripClaim(rebound())))
		if job, ok := agent.jobForClaim(t.Context(), "ns/data"); ok {
			if _, err := job.do(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := agent.auditOnce(t.Context()); err != nil {
			t.Error(err)
		}
		for _, request := range sent() {
			if !strings.HasPrefix(request, "GET ") {
				t.Errorf("it sends %s", request)
			}
		}
	})
	t.Run("a third node", func(t *testing.T) {
		onDisk := []lvm.ManagedVolume{}
		agent, sent := agentOf(t, "node-3", &onDisk, &allThere{})
		agent.learnVolumes(t.Context())
		must(t, agent.claims.Add(stripClaim(rebound())))
		if _, ok := agent.jobForClaim(t.Context(), "ns/data"); ok || len(sent()) > 0 || len(agent.claims.own) > 0 {
			t.Errorf("an expansion: %t; requests %q", ok, sent())
		}
	})
}

// gone is a node that has lost every volume.
type gone struct{ allThere }

func (*gone) Lookup(context.Context, lvm.ID) (lvm.Volume, error) {
	return lvm.Volume{}, lvm.Errorf(lvm.KindNotFound, "no such volume")
}

// TestLostVolumeOfAnotherSelectedNode: the audit reports the loss of a volume on its claim, whichever node is selected for it.
func TestLostVolumeOfAnotherSelectedNode(t *testing.T) {
	onDisk := []lvm.ManagedVolume{volumeOnDisk()}
	agent, sent := agentOf(t, "node-1", &onDisk, &gone{})
	agent.learnVolumes(t.Context())
	must(t, agent.claims.Add(stripClaim(rebound())))
	onDisk = nil
	if err := agent.auditOnce(t.Context()); err != nil || !agent.audit.lost || !slices.Contains(sent(), "POST /api/v1/namespaces/ns/events") {
		t.Errorf("lost: %t, %v; requests %q", agent.audit.lost, err, sent())
	}
	if err := agent.auditOnce(t.Context()); err != nil || !agent.audit.lost {
		t.Errorf("the next audit: lost %t, %v", agent.audit.lost, err)
	}
}

// TestVolumesOfDeletedClaimsAreForgotten: the agent remembers the names of volumes on the disks, and of those that a claim needs.
func TestVolumesOfDeletedClaimsAreForgotten(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	store.setHere(map[string]bool{"pvc-data": true, "pvc-old": true})
	must(t, store.Add(stripClaim(rebound())))
	store.setHere(map[string]bool{"pvc-new": true})
	if store.here["pvc-old"] || !store.here["pvc-data"] || !store.here["pvc-new"] {
		t.Errorf("it remembers %v", store.here)
	}
	must(t, store.Delete(rebound()))
	store.setHere(map[string]bool{})
	if len(store.here)+len(store.own)+len(store.keys) > 0 {
		t.Errorf("it remembers %v, %v, %v", store.here, store.own, store.keys)
	}
}

// TestForbiddenExpansionNamesTheAnnotation: the admission policy takes the selected node of a claim for that of the volume which was
// created for it; the event names the annotation to remove.
func TestForbiddenExpansionNamesTheAnnotation(t *testing.T) {
	server, client := newAPI(t)
	agent := NewAgent(Config{Client: client, Node: "node-1"})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "data", nil)
	own := rebound()
	own.Annotations[api.AnnotationSelectedNode] = "node-1"
	for _, claim := range []*corev1.PersistentVolumeClaim{own, rebound()} {
		must(t, agent.reportForbidden(t.Context(), claim, api.ReasonVolumeResizeFailed, forbidden))
	}
	if got := server.reasons(); strings.Count(got, "VolumeResizeFailed") != 1 || !strings.Contains(got, "kubectl -n ns annotate pvc data volume.kubernetes.io/selected-node-") {
		t.Errorf("events: %s", got)
	}
}
