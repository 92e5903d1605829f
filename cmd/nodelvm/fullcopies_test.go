package main

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
	"github.com/nodelvm/nodelvm/move"
)

// SnapshotDevice and ReleaseSnapshot stand for a device that exists.
func (f onFile) SnapshotDevice(context.Context, lvm.ID, string) (string, error) { return f.path, nil }
func (onFile) ReleaseSnapshot(context.Context, lvm.ID, string) error            { return nil }

// TestFullCopies: a node sends a snapshot to the driver on the node where a claim waits that is restored or cloned from it, and to no other peer.
func TestFullCopies(t *testing.T) {
	for name, c := range map[string]struct {
		account, node, key string // "" for those of the target
		class              string // restoreOnOtherNodes
		clone              string // name of the snapshot, if the claim is a clone
		log                string // "": it is sent
	}{
		"the target":                     {class: "true"},
		"another node's token":           {class: "true", node: "node-3", log: "does not wait for a volume on node"},
		"another account":                {class: "true", account: "system:serviceaccount:demo:default", log: "the peer's token is not one of"},
		"a key that the claim lacks":     {class: "true", key: "sha256:0", log: "has not published the key"},
		"a class that does not allow it": {class: "false", log: "does not let it be copied"},
		"a clone":                        {class: "true", clone: api.PrefixClone + "claim-copy"},
		"a clone, of a user's snapshot":  {class: "true", clone: api.PrefixSnapshot + "uid", log: "was not taken for claim"},
	} {
		t.Run(name, func(t *testing.T) {
			fullCopy(t, cmp.Or(c.account, driverAccount), cmp.Or(c.node, "node-2"), c.key, c.class, c.clone, c.log)
		})
	}
}

func fullCopy(t *testing.T, account, node, key, class, clone, log string) {
	const size = 8 * lvm.MiB
	group := lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}}
	target, content := device(t, make([]byte, 2*size)), bytes.Repeat([]byte("12345678"), int(size/8))
	peer, err := move.New(move.Config{Engine: onFile{lvmtest.NewHost(t, group), target}, Token: func() (string, error) { return "peer's", nil }, Log: slog.New(slog.DiscardHandler)})
	must(t, err)
	t.Cleanup(func() { _ = peer.Close(context.Background()) })

	source := lvmtest.NewHost(t, group)
	v, err := source.Create(t.Context(), lvm.Spec{Name: "origin", Required: size, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}})
	must(t, err)
	taken := lvm.SnapshotSpec{Name: cmp.Or(clone, api.PrefixSnapshot+"uid"), Source: v.ID}
	if strings.HasPrefix(clone, api.PrefixClone) {
		taken.Claim = "ns/copy"
	}
	sn, err := source.CreateSnapshot(t.Context(), taken)
	must(t, err)
	objects := restoredClaim(sn, account, node, cmp.Or(key, peer.Key()), class)
	if clone != "" {
		cloneOf(v.ID, objects)
	}
	client, _ := kubetest.RecordedClient(t, objects)
	own, out := filepath.Join(t.TempDir(), "token"), &buffer{}
	must(t, os.WriteFile(own, []byte(ofAccount(driverAccount)), 0o600))
	d := newDriver(&options{nodeName: "node-1", move: moveOptions{listen: freeAddress(t), address: "127.0.0.1", tokenFile: own, keep: time.Hour}}, slog.New(slog.NewJSONHandler(out, nil)))
	m, err := d.newMoves(client, onFile{source, device(t, content)}, nil)
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	parts, ctx := errgroup.WithContext(ctx)
	must(t, m.start(ctx, parts, wait.Limit(time.Minute)))
	t.Cleanup(func() {
		stop()
		if err := parts.Wait(); err != nil {
			t.Error(err)
		}
	})
	spec := lvm.Spec{Name: "pvc-claim-copy", Claim: "ns/copy", Required: 2 * size, Class: lvm.Class{Group: "vg", Layout: lvm.LayoutThin}, Source: lvm.ID{VG: "elsewhere", LV: sn.ID.LV}}
	err = fetch(t, peer, m.node.Offer(sn), spec)
	if (err == nil) != (log == "") || err != nil && !strings.Contains(err.Error(), `answers 403: "not allowed"`) || !strings.Contains(out.String(), log) {
		t.Errorf("%v\n%s", err, out)
	}
	got, err := os.ReadFile(target)
	if err != nil || bytes.Equal(got, append(content, make([]byte, size)...)) != (log == "") {
		t.Errorf("the copy has %d bytes (%v)", len(got), err)
	}
}

// fetch copies until the copy is complete, or an attempt fails.
func fetch(t *testing.T, peer *move.Node, offer move.Offer, spec lvm.Spec) error {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(time.Minute)); ; time.Sleep(10 * time.Millisecond) {
		p, err := peer.Fetch(t.Context(), offer, move.ClaimOf("ns", "copy", "claim-copy"), spec)
		must(t, err)
		if p.Problem != nil || p.Volume.State == lvm.StateReceived {
			return p.Problem
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", p)
		}
	}
}

// restoredClaim are the objects of a claim on node-2 that is restored from a snapshot of node-1, and the review of the peer's token.
func restoredClaim(sn lvm.Snapshot, account, node, key, anywhere string) map[string]any {
	claim := kubetest.Claim("copy", "thin", "")
	claim.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2", api.AnnotationCopyKey: key}
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To(api.SnapshotGroup), Kind: kubeclient.KindSnapshot, Name: "nightly"}
	class := kubetest.Class("thin", api.DriverName, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Parameters = map[string]string{api.ParameterRestoreOnOtherNodes: anywhere}
	snapshot := &kubeclient.Snapshot{TypeMeta: metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindSnapshot}}
	snapshot.Namespace, snapshot.Name, snapshot.UID, snapshot.Status.Content = "ns", "nightly", "uid", "content"
	content := kubetest.ContentOf("content", "uid", sn.ID.String())
	content.TypeMeta = metav1.TypeMeta{APIVersion: "snapshot.storage.k8s.io/v1", Kind: kubeclient.KindContent}
	review := &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}}
	review.Status.Authenticated, review.Status.User.Username = true, account
	review.Status.User.Extra = map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {node}}
	return map[string]any{
		"GET /api/v1/namespaces/ns/persistentvolumeclaims/copy":                      claim,
		"GET /apis/storage.k8s.io/v1/storageclasses/thin":                            class,
		"GET /apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/nightly": snapshot,
		"GET /apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/content":        content,
		reviews: review,
	}
}

// cloneOf makes the claim one that is cloned from a claim with a volume of node-1.
func cloneOf(volume lvm.ID, objects map[string]any) {
	pv := kubetest.VolumeOn("node-1", "data")
	pv.Spec.CSI.VolumeHandle = volume.String()
	objects["GET /api/v1/namespaces/ns/persistentvolumeclaims/data"] = kubetest.Claim("data", "thin", "pvc-data")
	objects["GET /api/v1/persistentvolumes/pvc-data"] = pv
	claim := objects["GET /api/v1/namespaces/ns/persistentvolumeclaims/copy"].(*corev1.PersistentVolumeClaim)
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kubeclient.KindClaim, Name: "data"}
}
