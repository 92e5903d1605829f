//go:build e2e

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/fullcopy"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/move"
	"github.com/nodelvm/nodelvm/pending"
)

// copier is a node whose driver copies what is on other nodes, without data.
type copier struct {
	*node
	engine *fullcopy.Agent

	mu      sync.Mutex
	fetched move.Offer // what Fetch would pull
	ends    bool       // it is complete
}

func newCopier(t *testing.T, name string) *copier {
	t.Helper()
	c := &copier{node: newNodeNamed(t, namespace(t)+"-"+name)}
	if name == "a" { // no other node has the UUID of its second group
		c.host = lvmtest.NewHost(t, lvmtest.Group{Name: "first", Disks: []lvm.Bytes{lvm.GiB}}, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	}
	client, err := kubeclient.NewClientFor(config(c.token))
	must(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c.engine = fullcopy.New(fullcopy.Config{Client: client, Engine: c, Volumes: c.host, Node: c.name, Log: log})
	c.copies = c.engine
	return c
}

// start runs the node's agents to the end of the test.
func (c *copier) start(t *testing.T) {
	t.Helper()
	c.cluster = c.node.start(t, func(cfg *kube.Config) { cfg.Copies = c.engine })
	inBackground(t, c.engine.Run)
}

func (c *copier) Key() string { return "key-of-" + c.name }

func (c *copier) Offer(sn lvm.Snapshot) move.Offer {
	return move.Offer{Volume: sn.ID.String(), UUID: sn.UUID, Size: sn.Size, Address: "127.0.0.1:1", Key: c.Key()}
}

func (c *copier) Fetch(ctx context.Context, offer move.Offer, _ string, spec lvm.Spec) (p move.Progress, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fetched = offer
	const hold = "00000000000000000000000000000000"
	if p.Volume, err = c.host.Receive(ctx, lvm.Incoming{Spec: spec, Move: hold}); err == nil && c.ends {
		p.Volume, err = c.host.Received(ctx, p.Volume.ID, p.Volume.UUID, hold)
	}
	return p, err
}

func (c *copier) Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error) {
	return c.host.Finish(ctx, id, uuid)
}

func (c *copier) Discard(ctx context.Context, id lvm.ID, uuid string) error {
	return c.host.Discard(ctx, id, uuid)
}

// end lets copies to this node be complete.
func (c *copier) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = true
}

// offered is the offer that this node copies; it is empty as long as there is none.
func (c *copier) offered() move.Offer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fetched
}

// moveToken is the token that the node shows to another one.
func (c *copier) moveToken(t *testing.T) string {
	t.Helper()
	pod, err := admin.CoreV1().Pods(system).Get(t.Context(), "nodelvm-"+c.name, metav1.GetOptions{})
	must(t, err)
	request, err := admin.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), "nodelvm", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{api.AudienceMove}, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}, metav1.CreateOptions{})
	must(t, err)
	return request.Status.Token
}

// pulls asks the source for a snapshot for a claim, with this node's token and key.
func (c *copier) pulls(t *testing.T, source *copier, claim *corev1.PersistentVolumeClaim, offer move.Offer) error {
	t.Helper()
	id, err := lvm.ParseID(offer.Volume)
	must(t, err)
	return source.engine.MayPull(t.Context(), "system:serviceaccount:"+system+":nodelvm", move.Request{
		Token: c.moveToken(t), Key: c.Key(), Volume: id, UUID: offer.UUID, Claim: move.ClaimOf(claim.Namespace, claim.Name, string(claim.UID)),
	})
}

// annotates tries to annotate a claim or PersistentVolume with this node's token; a value null removes the annotation.
func (c *copier) annotates(t *testing.T, o metav1.Object, annotation, value string) error {
	t.Helper()
	body := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, annotation, value)
	core := c.client(t).CoreV1()
	if o.GetNamespace() == "" {
		_, err := core.PersistentVolumes().Patch(t.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	_, err := core.PersistentVolumeClaims(o.GetNamespace()).Patch(t.Context(), o.GetName(), types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

// TestFullCopy: of a claim that waits on one node, to be restored or cloned from another one, the real csi-provisioner of that node finds the source. The
// node gets the offer, and may pull exactly its snapshot. A stolen token of a third node gets it only if it takes the claim, and nothing else of the
// source. What it writes for others is refused.
func TestFullCopy(t *testing.T) {
	allowMoves(t)
	newClass(t, "anywhere", map[string]string{"volumeGroup": "vg", "layout": "thin", api.ParameterRestoreOnOtherNodes: "true"})
	t.Run("restore", func(t *testing.T) { testFullCopy(t, snapshotGroup, "VolumeSnapshot", "snap") })
	t.Run("clone", func(t *testing.T) { testFullCopy(t, "", "PersistentVolumeClaim", "data") })
}

func testFullCopy(t *testing.T, group, kind, name string) {
	source, target, thief := newCopier(t, "a"), newCopier(t, "b"), newCopier(t, "c")
	source.start(t)
	target.start(t)
	logs := target.startSidecars(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logs())
		}
	})
	origin := source.bound(t, "data", corev1.PersistentVolumeFilesystem)
	content, snapshot := source.snapshotOf(t, origin, "snap")
	markReady(t, content, snapshot)
	patchRaw(t, []string{snapshotsIn(t), "snap", "status"}, `{"status": {"readyToUse": true, "boundVolumeSnapshotContentName": %q}}`, content)
	claim := newClaim(t, "copy", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = new("anywhere")
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: kind, Name: name, APIGroup: &group}
	})
	selects := func(c *copier) {
		claim = patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q, "volume.kubernetes.io/storage-provisioner": %q}}}`, selected, c.name, driver))
	}
	selects(target)
	soon(t, "the target begins to copy", func() bool { return target.offered().Volume != "" })
	offer := target.offered()
	if (offer.Volume == snapshot) != (kind == "VolumeSnapshot") || offer.Key != source.Key() {
		t.Errorf("the target copies %+v", offer)
	}
	pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), origin.Spec.VolumeName, metav1.GetOptions{})
	must(t, err)
	others := []move.Offer{{Volume: source.take(t, origin, api.PrefixClone+"other")}, {Volume: source.take(t, origin, "another")}}
	if kind == "PersistentVolumeClaim" {
		others = append(others, move.Offer{Volume: snapshot})
	}

	mustBe := func(what, refusal string, err error) {
		t.Helper()
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	mustBe("the target pulls", "", target.pulls(t, source, claim, offer))
	for _, other := range others {
		mustBe("the target pulls another snapshot", "snapshot", target.pulls(t, source, claim, other))
	}
	mustBe("a third node pulls", "does not wait for a volume on node", thief.pulls(t, source, claim, offer))
	key := func(c *copier) string { return fmt.Sprintf("%q", c.Key()) }
	forbidden("a third node publishes its key", thief.annotates(t, claim, api.AnnotationCopyKey, key(thief)))
	forbidden("a third node says how to clone", thief.annotates(t, pv, api.AnnotationCloneOffer+string(claim.UID), `"{}"`))
	forbidden("the target says it", target.annotates(t, pv, api.AnnotationCloneOffer+string(claim.UID), `"{}"`))
	if kind == "PersistentVolumeClaim" {
		forbidden("a third node removes it", thief.annotates(t, pv, api.AnnotationCloneOffer+string(claim.UID), "null"))
	}
	forbidden("the source says something else", source.annotates(t, pv, "nodelvm.io/other", `"{}"`))

	// A claim with a source can be taken: its node gets what the claim names, and nothing else.
	must(t, thief.annotates(t, claim, selected, fmt.Sprintf("%q", thief.name)))
	mustBe("it pulls without its key", "has not published the key", thief.pulls(t, source, claim, offer))
	must(t, thief.annotates(t, claim, api.AnnotationCopyKey, key(thief)))
	mustBe("it pulls what the claim names", "", thief.pulls(t, source, claim, offer))
	for _, other := range others {
		mustBe("it pulls another snapshot", "snapshot", thief.pulls(t, source, claim, other))
	}
	empty := newClaim(t, "empty", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName, c.Annotations[selected] = new("anywhere"), thief.name
	})
	forbidden("it publishes its key on an empty claim", thief.annotates(t, empty, api.AnnotationCopyKey, key(thief)))
	mustBe("it pulls for an empty claim", "has not published the key", thief.pulls(t, source, empty, offer))
	mustBe("the former target pulls", "does not wait for a volume on node", target.pulls(t, source, claim, offer))

	selects(target)
	target.end()
	copied := target.untilProvisioned(t, claim)
	if pending.NodeOf(copied) != target.name || copied.Spec.CSI.VolumeAttributes[api.AttributeSource] == "" {
		t.Errorf("the copy is %+v", copied.Spec)
	}
	until(t, claim, "bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Spec.VolumeName == copied.Name })
	mustBe("the thief pulls for a bound claim", "does not wait for a volume on node", thief.pulls(t, source, claim, offer))
	mustBe("the target pulls for a bound claim", "does not wait for a volume on node", target.pulls(t, source, claim, offer))
	if kind == "PersistentVolumeClaim" {
		source.checkAgain()
		soon(t, "the source removes the snapshot and its offer", func() bool {
			id, err := lvm.ParseID(offer.Volume)
			must(t, err)
			_, err = source.host.LookupSnapshot(t.Context(), id)
			now, failed := admin.CoreV1().PersistentVolumes().Get(t.Context(), pv.Name, metav1.GetOptions{})
			must(t, failed)
			return lvm.KindOf(err) == lvm.KindNotFound && now.Annotations[api.AnnotationCloneOffer+string(claim.UID)] == ""
		})
	}
	dropAtEnd(t, claim, copied.Name)
	expectAllowed(t, source.node)
}

// checkAgain has the source check its snapshots now.
func (c *copier) checkAgain() {
	c.engine.OfferClone(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "none", Name: "none"}})
}
