// Package clustertest has the cluster that the tests of nodelvm-controller's parts share: client-go's fake clientset. Only tests
// import it.
package clustertest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// Objects returns the synced facts about these objects, and about all that a test creates with the clientset later.
func Objects(t *testing.T, objects ...runtime.Object) (*cluster.Objects, *fake.Clientset) {
	t.Helper()
	var contents, groups, others []runtime.Object
	for _, o := range objects {
		switch o.(type) {
		case *kubeclient.Content:
			contents = append(contents, o)
		case *kubeclient.GroupContent:
			groups = append(groups, o)
		default:
			others = append(others, o)
		}
	}
	clientset := fake.NewClientset(others...)
	o := cluster.NewObjects(clientset, snapshotAPI(t, contents, groups), "ns", slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { o.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	Eventually(t, "the lists have not arrived", func() bool {
		return o.Nodes.IsSynced() && o.Volumes.IsSynced() && o.Claims.IsSynced() && o.Classes.IsSynced() && o.Capacities.IsSynced() && o.Contents.IsSynced() && o.Groups.IsSynced()
	})
	return o, clientset
}

// Eventually waits until a condition holds, and fails the test with the complaint if it does not in time.
func Eventually(t *testing.T, complaint string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(20 * time.Second)); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(complaint)
		}
	}
}

// snapshotAPI returns a client of an API server that lists these contents of snapshots and of group snapshots, and has no other objects.
func snapshotAPI(t *testing.T, contents, groups []runtime.Object) *kubeclient.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version, kind, items := kubeclient.SnapshotVersion, kubeclient.KindContent, contents
		if strings.Contains(r.URL.Path, kubeclient.GroupSnapshotVersion.Group) {
			version, kind, items = kubeclient.GroupSnapshotVersion, kubeclient.KindGroupContent, groups
		}
		switch query := r.URL.Query(); {
		case query.Get("sendInitialEvents") != "":
			w.WriteHeader(http.StatusUnprocessableEntity) // the client falls back to lists
		case query.Get("watch") != "":
			<-r.Context().Done()
		default:
			kubetest.Reply(w, http.StatusOK, map[string]any{
				"apiVersion": version.String(), "kind": kind + "List", "metadata": metav1.ListMeta{ResourceVersion: "1"}, "items": items,
			})
		}
	}))
	return kubetest.ClientOf(t, server)
}
