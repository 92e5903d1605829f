package nodeloss

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
)

// FuzzFirstStep: whatever objects contain, the Controller deletes nothing and removes no finalizer as soon as it observes a loss.
func FuzzFirstStep(f *testing.F) {
	noted := map[string]string{api.AnnotationLostSince: "2026-01-02T03:04:05Z", api.AnnotationVolumeGroupLostSince: "2026-01-02T03:04:05Z", api.AnnotationReclaimPolicy: "Delete"}
	pv, c, content, s := kubetest.VolumeOn("n", "data"), kubetest.Claim("data", "late", "pvc-data"), kubetest.ContentOf("a", "uid", kubetest.SnapshotHandle("uid")), &kubeclient.Snapshot{}
	pv.Annotations, content.Annotations = noted, noted
	text, err := json.Marshal([]any{pv, c, content, s})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`[{"spec": {"csi": null, "claimRef": {}}}, {}, {"metadata": {"annotations": {"nodelvm.io/lost-since": "2026-01-02T03:04:05Z"}}}, {}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var pv corev1.PersistentVolume
		var c corev1.PersistentVolumeClaim
		var content kubeclient.Content
		var s kubeclient.Snapshot
		if json.Unmarshal(text, &[]any{&pv, &c, &content, &s}) != nil {
			return
		}
		now := time.Now()
		step := decide(observation{Now: now, Grace: time.Minute, Loss: lossOf("n", nil, ""), Pv: &pv, Claim: &c, OptIn: true,
			Marked: recordedAt(pv.Annotations[api.AnnotationLostSince], now, pv.CreationTimestamp.Time, now)})
		if step == stepDeleteClaim || step == stepDeletePV || step == stepRemoveFinalizer {
			t.Errorf("step %d for a volume: %s", step, text)
		}
		step = decideContent(contentObservation{kind: ofSnapshot, Now: now, Grace: time.Minute, Loss: lossOf("n", nil, ""), C: &content, Bound: &s, OptIn: true,
			Marked: recordedAt(content.Annotations[api.AnnotationLostSince], now, content.CreationTimestamp.Time, now)})
		if step == stepDeleteClaim || step == stepRemoveFinalizer {
			t.Errorf("step %d for a content: %s", step, text)
		}
	})
}
