package claimevents

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/clustertest"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestStateOfTheCluster: a Reporter decides from the claims that wait, the oldest first, this driver's classes, and what nodes publish.
func TestStateOfTheCluster(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	older, newer := kubetest.Claim("z", "late", ""), kubetest.Claim("a", "late", "")
	older.CreationTimestamp, newer.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	size, most := resource.MustParse("5Gi"), resource.MustParse("3Gi")
	published := func(name string, labels map[string]string) *storagev1.CSIStorageCapacity {
		labels["csi.storage.k8s.io/drivername"] = api.DriverName
		return &storagev1.CSIStorageCapacity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: labels}, StorageClassName: "late", Capacity: &size, MaximumVolumeSize: &most,
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{api.TopologyKey: "n"}},
		}
	}
	objects, _ := clustertest.Objects(t, newer, older, kubetest.Claim("bound", "late", "pvc-bound"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		kubetest.Class("late", api.DriverName, ""), kubetest.Class("other", "example.com", ""),
		published("of-n", map[string]string{}), published("of-a-group", map[string]string{api.LabelNodeGroup: "g"}))
	s, known := stateOf(objects, now)
	if !known || len(s.claims) != 2 || s.claims[0].Name != "z" || s.claims[1].Name != "a" {
		t.Errorf("%t; the claims are %+v", known, s.claims)
	}
	if len(s.nodes) != 1 || len(s.classes) != 1 || s.classes[0].Name != "late" {
		t.Errorf("nodes %+v, classes %+v", s.nodes, s.classes)
	}
	if len(s.capacities) != 1 || s.capacities[0] != (capacity{"n", "late", 5 * gib, 3 * gib}) {
		t.Errorf("capacities %+v", s.capacities)
	}
}
