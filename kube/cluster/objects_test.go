package cluster_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/clustertest"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestWatches: however many parts run, there is one watch for each kind, and facts follow changes.
func TestWatches(t *testing.T) {
	foreign := kubetest.VolumeOn("n", "foreign")
	foreign.Spec.CSI.Driver = "example.com"
	claim := kubetest.Claim("data", "late", "")
	claim.Annotations = map[string]string{api.AnnotationSelectedNode: "n"}
	o, clientset := clustertest.Objects(t, kubetest.VolumeOn("n", "b"), kubetest.VolumeOn("n", "a"), kubetest.VolumeOn("m", "c"), foreign, claim, kubetest.ContentOf("s", "uid", ""))
	names := func(volumes []*cluster.Volume) (list []string) {
		for _, v := range volumes {
			list = append(list, v.Name)
		}
		return list
	}
	if got := strings.Join(names(o.Volumes.On("n")), " "); got != "pvc-a pvc-b" {
		t.Errorf("on n: %s", got)
	}
	if all := o.Volumes.All(); len(all) != 4 {
		t.Errorf("%d volumes", len(all))
	}
	if c, there := o.Claims.Find("ns/data"); !there || c.SelectedNode != "n" || c.Key() != "ns/data" || len(o.Claims.On("n")) != 1 {
		t.Errorf("the claim: %+v", c)
	}
	if c, there := o.Contents.Find("s"); !there || c.Node != "node-1" {
		t.Errorf("the content: %+v", c)
	}
	var changes []string
	done := make(chan struct{})
	o.Volumes.OnChange(func(was, now *cluster.Volume) {
		switch {
		case was == nil && now.Name == "pvc-new":
			changes = append(changes, "added")
		case was != nil && now != nil:
			changes = append(changes, "changed to "+now.Class)
		case now == nil:
			changes = append(changes, "deleted "+was.Name)
			close(done)
		}
	})
	volumes, pv := clientset.CoreV1().PersistentVolumes(), kubetest.VolumeOn("n", "new")
	for _, step := range []func() error{
		func() error { _, err := volumes.Create(t.Context(), pv, metav1.CreateOptions{}); return err },
		func() error {
			pv.Spec.StorageClassName, pv.ResourceVersion = "other", "2"
			_, err := volumes.Update(t.Context(), pv, metav1.UpdateOptions{})
			return err
		},
		func() error { return volumes.Delete(t.Context(), pv.Name, metav1.DeleteOptions{}) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	if got := strings.Join(changes, ", "); got != "added, changed to other, deleted pvc-new" {
		t.Errorf("changes: %s", got)
	}
	watches := map[string]int{}
	for _, a := range clientset.Actions() {
		if a.GetVerb() == "watch" {
			watches[a.GetResource().Resource]++
		}
	}
	if len(watches) != 5 { // and that of the contents
		t.Errorf("watches: %v", watches)
	}
	for kind, n := range watches {
		if n != 1 {
			t.Errorf("%d watches of %s", n, kind)
		}
	}
}

// TestClusterWithoutSnapshots: it has no contents, so that losses can end.
func TestClusterWithoutSnapshots(t *testing.T) {
	client, _ := kubetest.RecordedClient(t, nil)
	o := cluster.NewObjects(fake.NewClientset(), client, "ns", slog.New(slog.DiscardHandler))
	if o.Contents.IsSynced() || o.Groups.IsSynced() {
		t.Fatal("synced before the first answer")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); o.Run(ctx) }()
	defer func() { stop(); <-ended }()
	clustertest.Eventually(t, "the list of the contents does not count as arrived", func() bool { return o.Contents.IsSynced() && o.Groups.IsSynced() })
}

// TestFactsAreSmall: the memory for an object of a tenant or another driver is limited.
func TestFactsAreSmall(t *testing.T) {
	large := strings.Repeat("x", api.MaxObject)
	claim := kubetest.Claim("data", "late", "")
	claim.Annotations, claim.Labels = map[string]string{"note": large[:api.MaxObject/2], api.AnnotationStorageClassBeta: "late"}, map[string]string{"a": "b"}
	if kept := cluster.ClaimOf(claim).Waiting; kept == nil || kept.Size() > 1<<10 || kept.Annotations[api.AnnotationStorageClassBeta] != "late" || kept.UID != claim.UID {
		t.Errorf("of a claim that waits is kept: %v", kept)
	}
	claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: large}
	claim.Annotations = map[string]string{api.AnnotationSelectedNode: large}
	if kept := cluster.ClaimOf(claim); kept.Waiting != nil || kept.SelectedNode != "" {
		t.Errorf("of a claim of %d bytes is kept: a selected node of %d, and %v", claim.Size(), len(kept.SelectedNode), kept.Waiting)
	}
	if bound := cluster.ClaimOf(kubetest.Claim("data", "late", "pvc-data")); bound.Waiting != nil || bound.SelectedNode != "" {
		t.Errorf("of a bound claim is kept: %+v", bound)
	}
	pv := kubetest.VolumeOn("n", "data")
	pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle = "example.com", large
	if v := cluster.VolumeOf(pv); v.Node != "" || v.Handle != "" || v.Claim != "" {
		t.Errorf("of another driver's volume is kept: %+v", v)
	}
	c := kubetest.ContentOf("a", "uid", "")
	c.Spec.Driver = "example.com"
	if got := cluster.ContentOf(c); got.Node != "" {
		t.Errorf("of another driver's content is kept: %+v", got)
	}
}

// TestCapacities: csi-provisioner's, those of node groups, and others.
func TestCapacities(t *testing.T) {
	size := resource.MustParse("1Gi")
	object := func(labels map[string]string, topology *metav1.LabelSelector) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: labels}, StorageClassName: "late", Capacity: &size, NodeTopology: topology}
	}
	onNode := &metav1.LabelSelector{MatchLabels: map[string]string{api.TopologyKey: "n"}}
	for name, test := range map[string]struct {
		object  *storagev1.CSIStorageCapacity
		node    string
		isGroup bool
	}{
		"of a node":             {object(nil, onNode), "n", false},
		"of a node group":       {object(map[string]string{api.LabelNodeGroup: "g"}, onNode), "", true},
		"without topology":      {object(nil, nil), "", false},
		"of nodes with a label": {object(nil, &metav1.LabelSelector{MatchLabels: map[string]string{api.TopologyKey: "n", "zone": "a"}}), "", false},
	} {
		if got := cluster.CapacityOf(test.object); got.Node != test.node || (got.Group != nil) != test.isGroup || got.Size.Cmp(size) != 0 || got.Class != "late" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
