package nodegroup

import (
	"log/slog"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/clustertest"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestWithoutGroupsThePublisherDeletesTheObjectsOfFormerOnes: it deletes the objects of node groups alone, and ends.
func TestWithoutGroupsThePublisherDeletesTheObjectsOfFormerOnes(t *testing.T) {
	object := func(name string, labels map[string]string) *storagev1.CSIStorageCapacity {
		labels["csi.storage.k8s.io/drivername"] = api.DriverName
		return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}}
	}
	objects, clientset := clustertest.Objects(t, object("one", map[string]string{api.LabelNodeGroup: "nvme"}), object("two", map[string]string{api.LabelNodeGroup: "hdd"}),
		object("of-a-node", map[string]string{}))
	(&Publisher{Clientset: clientset, Namespace: "ns", Log: slog.New(slog.NewTextHandler(t.Output(), nil))}).Run(t.Context(), objects)
	left, err := clientset.StorageV1().CSIStorageCapacities("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) != 1 || left.Items[0].Name != "of-a-node" {
		t.Errorf("left are %v, %v", left.Items, err)
	}
}

// TestNoGroupLearnsFromClaims: a tenant can name any node in an unbound claim. It does not make the node look used.
func TestNoGroupLearnsFromClaims(t *testing.T) {
	claim := kubetest.Claim("data", "local", "")
	claim.Annotations = map[string]string{api.AnnotationSelectedNode: "claimed"}
	claimed, inUse := newSimulation(t).join("claimed", "machine-1", "1Gi"), newSimulation(t).join("used", "machine-2", "1Gi")
	objects, _ := clustertest.Objects(t, claim, claimed, inUse, kubetest.VolumeOn("used", "other"))
	f, known := factsIn(objects)
	if !known {
		t.Fatal("the lists have not arrived")
	}
	s := newView().state(f, time.Now())
	if len(s.nodes) != 2 {
		t.Fatalf("the nodes are %+v", s.nodes)
	}
	for _, n := range s.nodes {
		if n.used != (n.name == "used") {
			t.Errorf("node %s counts as used: %t", n.name, n.used)
		}
	}
}
