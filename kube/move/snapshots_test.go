package move

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// TestSnapshotsThatStay: the source names the snapshots of the moving volume before the move, and the target those that are there after it.
func TestSnapshotsThatStay(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	scheme, said := kubeclient.NewScheme(), []string(nil)
	recorder := kubetest.ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		event := &corev1.Event{}
		if r.Method == http.MethodPost { // each agent writes it once; others it repeats with patches
			_, _, err = protobuf.NewSerializer(scheme, scheme).Decode(body, nil, event)
		}
		if err != nil {
			t.Error(err)
		}
		if event.Reason == api.ReasonSnapshotsNotMoved {
			said = append(said, fmt.Sprintf("%s of %s %s: %s", event.ReportingInstance, event.InvolvedObject.Name, event.InvolvedObject.UID, event.Message))
		}
		kubetest.Reply(w, http.StatusCreated, event)
	})))
	for node, a := range p.agents {
		defer a.queue.ShutDown()
		a.events = &kubeclient.EventRecorder{Client: recorder, Node: node, Counts: map[string]kubeclient.EventCount{}}
	}
	p.snapshots = map[string][]string{"ns/node-1/" + p.nodes["node-1"].vols["pvc-uid-data"].ID.String(): {"nightly"}}
	for !p.handedOver() && p.step() {
		continue
	}
	for key := range p.snapshots {
		p.snapshots[key] = append(p.snapshots[key], "weekly") // taken meanwhile
	}
	p.rest()
	p.expect("node-2")
	for i, want := range []string{"node-1 of data uid-data: the snapshots nightly of this claim stay on node node-1,", "node-2 of data uid-data: the snapshots nightly, weekly of this claim stay on node node-1,"} {
		if len(said) != 2 || !strings.HasPrefix(said[i], want) || !strings.Contains(said[i], "Claims of a StorageClass with restoreOnOtherNodes are restored from them on any node") {
			t.Errorf("not %q in\n%s", want, strings.Join(said, "\n"))
		}
	}
}

// TestManySnapshotsThatStay: what a user has to do is in the event, however many snapshots with long names there are.
func TestManySnapshotsThatStay(t *testing.T) {
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("%02d-%s", i, strings.Repeat("n", 60)))
	}
	text := staying(names, "node-1")
	event := (&kubeclient.EventRecorder{}).Object(kubeclient.Event{Message: text}, metav1.Now().Time)
	if event.Message != text || !strings.Contains(text, names[maxNamed-1]+" and 12 more of this claim") || !strings.Contains(text, "restore or delete them") {
		t.Errorf("%d bytes: %s", len(text), event.Message)
	}
}

// TestSnapshotsOfVolume: of a node's contents those count that were taken of the volume, for a VolumeSnapshot of the claim's namespace.
func TestSnapshotsOfVolume(t *testing.T) {
	const volume = group + "1/pvc-uid-data"
	var list kubeclient.ContentList
	add := func(name string, change func(*kubeclient.Content)) {
		c := kubetest.ContentOf("content-"+name, "uid", kubetest.SnapshotHandle("uid"))
		c.Spec.Source.VolumeHandle, c.Spec.VolumeSnapshotRef.Name = volume, name
		change(c)
		list.Items = append(list.Items, *c)
	}
	add("weekly", func(*kubeclient.Content) {})
	add("nightly", func(c *kubeclient.Content) { c.Status.ReadyToUse = false })
	add("deleted", func(c *kubeclient.Content) { c.DeletionTimestamp = ptr.To(metav1.Now()) })
	add("of-another", func(c *kubeclient.Content) { c.Spec.Source.VolumeHandle += "-2" })
	add("given", func(c *kubeclient.Content) { c.Spec.Source.VolumeHandle, c.Spec.Source.SnapshotHandle = "", volume })
	add("elsewhere", func(c *kubeclient.Content) { c.Spec.VolumeSnapshotRef.Namespace = "other" })
	add("other-driver", func(c *kubeclient.Content) { c.Spec.Driver = "other.io" })
	list.TypeMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: "VolumeSnapshotContentList"}
	selector := ""
	client := kubetest.ClientOf(t, httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		selector = r.URL.Query().Get("labelSelector")
		kubetest.Reply(w, http.StatusOK, &list)
	})))
	got, err := server{client}.Snapshots(t.Context(), "ns", "node-1", volume)
	if err != nil || !slices.Equal(got, []string{"nightly", "weekly"}) || selector != api.LabelManagedBy+"=node-1" {
		t.Errorf("%q, %v, selected by %q", got, err, selector)
	}
	none, _ := kubetest.RecordedClient(t, nil) // a cluster without the snapshot API
	if got, err := (server{none}).Snapshots(t.Context(), "ns", "node-1", volume); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
