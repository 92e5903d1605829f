//go:build e2e

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/move"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/test/cluster"
)

// mover is a node whose agents are killed at requests and start again.
type mover struct {
	*node
	t     *testing.T
	disks *copies

	mu     sync.Mutex
	stop   func()
	killed map[string]bool // the requests at which an agent was killed, by what they change
	lost   bool            // the API server carries a request out before the agent is killed, else not
	calm   bool            // kill no agent
	sent   []string
	wrong  []string
}

// TestMove moves the two claims of a pod with the tokens of two nodes. Each agent is killed at every kind of request, before or after the API server
// carries it out.
func TestMove(t *testing.T) {
	allowMoves(t)
	for _, lost := range []bool{false, true} {
		t.Run(map[bool]string{false: "before", true: "after"}[lost], func(t *testing.T) {
			a, b := newMover(t, "a", lost), newMover(t, "b", lost)
			claims := []*corev1.PersistentVolumeClaim{a.provisioned(t, "data"), a.provisioned(t, "wal")}
			volume := a.disks.find(claims[0].Spec.VolumeName).ID.String()
			for content, on := range map[string]string{"nightly": a.name, "elsewhere": b.name} {
				makeContent(t, content, "uid", "class", on, content+"-"+a.name, volume)
			}
			for _, claim := range claims {
				patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationMoveTo, b.name))
			}
			for _, claim := range claims {
				expectOn(t, claim, b)
			}
			a.expectSnapshotsNamed(t, claims[0], b)
			for _, claim := range claims {
				if l := a.disks.find(claim.Spec.VolumeName); l == nil || l.State != "moved" {
					t.Errorf("the former copy of %s is %+v", claim.Name, l)
				}
				patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationMoveFinish, a.name))
				soon(t, "the former copy is removed", func() bool { return a.disks.find(claim.Spec.VolumeName) == nil })
			}
			a.expectKilled(t, "POST persistentvolumes", "DELETE persistentvolumes", "PATCH persistentvolumes", "PATCH persistentvolumeclaims")
			b.expectKilled(t, "POST persistentvolumes", "PATCH persistentvolumes", "PATCH persistentvolumeclaims")
		})
	}
	t.Run("cancelled", testCancelledMove)
	t.Run("deleted", testDeletedWhileMoving)
	t.Run("others", testMoveOfOthers)
	t.Run("commands", testMoveCommands)
}

// expectSnapshotsNamed waits until the target has said, with its own token, which snapshots of a volume that has moved are still on this node.
func (m *mover) expectSnapshotsNamed(t *testing.T, claim *corev1.PersistentVolumeClaim, target *mover) {
	t.Helper()
	words := "the snapshots nightly of this claim stay on node " + m.name + ", and are lost with it."
	eventSays(t, claim.Namespace, claim.Name, api.ReasonSnapshotsNotMoved, corev1.EventTypeNormal, words)
	soon(t, "the target says it", func() bool {
		return slices.ContainsFunc(eventsOn(t, claim.Namespace, claim.Name), func(e corev1.Event) bool {
			return e.Reason == api.ReasonSnapshotsNotMoved && e.ReportingInstance == target.name && e.Count > 1
		})
	})
}

// testCancelledMove: a cancelled move leaves everything as it was.
func testCancelledMove(t *testing.T) {
	a, b := newMover(t, "a", true), newMover(t, "b", true)
	b.disks.stuck = true
	claim := a.provisioned(t, "data")
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationMoveTo, b.name))
	soon(t, "the copy begins", func() bool { return b.disks.find(claim.Spec.VolumeName) != nil })
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, api.AnnotationMoveTo))
	expectOn(t, claim, a)
	soon(t, "the copy is discarded", func() bool { return b.disks.find(claim.Spec.VolumeName) == nil })
}

// testDeletedWhileMoving: the PersistentVolume of a claim that is deleted during the copy is released on the source, under its old policy.
func testDeletedWhileMoving(t *testing.T) {
	a, b := newMover(t, "a", true), newMover(t, "b", true)
	b.disks.stuck = true
	claim := a.provisioned(t, "data")
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationMoveTo, b.name))
	soon(t, "the copy begins", func() bool { return b.disks.find(claim.Spec.VolumeName) != nil })
	patchClaim(t, claim, "", `{"metadata": {"finalizers": null}}`)
	must(t, admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
	soon(t, "the volume is released", func() bool {
		pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
		return err == nil && pv.Status.Phase == corev1.VolumeReleased && pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete &&
			pv.Annotations[api.AnnotationMoveRecord] == "" && pending.NodeOf(pv) == a.name
	})
	soon(t, "the copy is discarded", func() bool { return b.disks.find(claim.Spec.VolumeName) == nil })
	soon(t, "the source has its volume as before", func() bool {
		l := a.disks.find(claim.Spec.VolumeName)
		return l != nil && l.State == lvm.StateReady && l.Record == ""
	})
}

// testMoveOfOthers: the token of a node that a move does not concern changes nothing of it, nor does the target's more than its answer.
func testMoveOfOthers(t *testing.T) {
	a, b, other := newMover(t, "a", true), newMover(t, "b", true), newNodeNamed(t, "testmove-third")
	b.disks.stuck = true
	claim := a.provisioned(t, "data")
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, api.AnnotationMoveTo, b.name))
	soon(t, "the copy begins", func() bool { return b.disks.find(claim.Spec.VolumeName) != nil })
	a.halt()
	b.halt()
	note := func(key string) string { return fmt.Sprintf(`{"metadata": {"annotations": {%q: "forged"}}}`, key) }
	for _, n := range []*node{b.node, other} {
		for what, patch := range map[string]string{"hand over": note(api.AnnotationHandedOver), "offer": note(api.AnnotationMoveOffer), "take": `{"metadata": {"finalizers": null}}`} {
			_, err := n.client(t).CoreV1().PersistentVolumes().Patch(t.Context(), claim.Spec.VolumeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("node %s may %s another node's volume: %v", n.name, what, err)
			}
		}
		if err := n.client(t).CoreV1().PersistentVolumes().Delete(t.Context(), claim.Spec.VolumeName, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("node %s may delete it: %v", n.name, err)
		}
		for _, key := range []string{selected, api.AnnotationMoveStatus, api.AnnotationMoveTo} {
			_, err := n.client(t).CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(note(key)), metav1.PatchOptions{})
			if !apierrors.IsForbidden(err) {
				t.Errorf("node %s may write %s of the claim: %v", n.name, key, err)
			}
		}
	}
	_, err := other.client(t).CoreV1().PersistentVolumes().Patch(t.Context(), claim.Spec.VolumeName, types.MergePatchType, []byte(note(api.AnnotationMoveAnswer)), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a third node may answer: %v", err)
	}
}

// allowMoves turns the switch of the policies on, and runs Kubernetes' volume controllers, to the end of the test.
func allowMoves(t *testing.T) {
	t.Helper()
	helm, err := cluster.HelmPath()
	must(t, err)
	for _, on := range []string{"true", "false"} {
		policies, err := exec.CommandContext(t.Context(), helm, "template", "nodelvm", "../../deploy/chart/nodelvm", "--namespace", system, "--kube-version", "1.32",
			"--set", "move.enabled="+on, "--show-only", "templates/noderestriction.yaml", "--show-only", "templates/volumeclass.yaml").Output()
		must(t, err)
		apply := func(ctx context.Context) {
			c := exec.CommandContext(ctx, kubectl, "--server="+server, "--token="+adminPass, "--insecure-skip-tls-verify", "apply", "--server-side", "--force-conflicts", "-f", "-")
			c.Stdin = bytes.NewReader(policies)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("kubectl apply: %v: %s", err, out)
			}
		}
		if on == "true" {
			apply(t.Context())
		} else {
			t.Cleanup(func() { apply(context.Background()) })
		}
	}
	probe := newNode(t, "probe")
	soon(t, "the policy is in force", func() bool { return probe.maySwap(t) })
	dir := t.TempDir()
	path := filepath.Join(dir, "admin")
	writeKubeconfig(t, path, server, adminPass)
	stop, err := start(dir, sidecars["kube-controller-manager"], "--controllers=persistentvolume-binder-controller,persistentvolume-protection-controller",
		"--kubeconfig="+path, "--leader-elect=false", "--secure-port=0", "--profiling=false")
	must(t, err)
	t.Cleanup(stop)
}

// maySwap tries, in a dry run, what only the policy with moves admits.
func (n *node) maySwap(t *testing.T) bool {
	t.Helper()
	term := affinityTo(n.name)
	term.Required.NodeSelectorTerms[0].MatchExpressions = append(term.Required.NodeSelectorTerms[0].MatchExpressions,
		corev1.NodeSelectorRequirement{Key: api.ParkedKey, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"}})
	_, err := n.client(t).CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-probe", Annotations: map[string]string{api.AnnotationProvisionedBy: driver, api.AnnotationMovingTo: "b", api.AnnotationMoveRecord: `{"policy":"Delete"}`}},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: "thin", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "a", Name: "a", UID: "probe"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG/pvc-probe"}},
			NodeAffinity:           term},
	}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	return err == nil
}

func newMover(t *testing.T, name string, lost bool) *mover {
	t.Helper()
	n := newNodeNamed(t, strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))+"-"+name)
	create(t, admin.StorageV1().CSINodes(), &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: storagev1.CSINodeSpec{
		Drivers: []storagev1.CSINodeDriver{{Name: driver, NodeID: n.name, TopologyKeys: []string{topology}}},
	}})
	m := &mover{node: n, t: t, disks: newCopies(n.name), killed: map[string]bool{}, lost: lost}
	m.begin()
	t.Cleanup(func() { m.halt(); m.expectAllowed(t) })
	return m
}

// begin starts the node's agents.
func (m *mover) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	c := config(m.token)
	dead := false
	c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return trip(func(r *http.Request) (*http.Response, error) { return m.send(next, r, &dead) })
	}
	client, err := kubeclient.NewClientFor(c)
	must(m.t, err)
	mover := move.New(move.Config{Client: client, Engine: m.disks, Node: m.name, Log: log})
	agent := kube.NewAgent(kube.Config{Client: client, Node: m.name, Volumes: m.host, Holdings: m.host.ManagedVolumes, Log: log, Moves: mover.Observe})
	var ended sync.WaitGroup
	ended.Go(func() { agent.Run(ctx) })
	ended.Go(func() { mover.Run(ctx) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = sync.OnceFunc(func() { cancel(); ended.Wait() })
}

func (m *mover) halt() {
	m.mu.Lock()
	m.calm = true
	stop := m.stop
	m.mu.Unlock()
	stop()
}

var errKilled = errors.New("this agent was killed")

// send kills the agent at the first request of each kind.
func (m *mover) send(next http.RoundTripper, r *http.Request, dead *bool) (*http.Response, error) {
	kind := m.kindOf(r)
	m.mu.Lock()
	if *dead {
		m.mu.Unlock()
		return nil, errKilled
	}
	kill := kind != "" && !m.killed[kind] && !m.calm
	if kill {
		m.killed[kind], *dead = true, true
	}
	m.mu.Unlock()
	if kill && !m.lost {
		go m.restart()
		return nil, errKilled
	}
	response, err := next.RoundTrip(r)
	if kind != "" && err == nil {
		m.mu.Lock()
		m.sent = append(m.sent, fmt.Sprint(kind, " ", response.StatusCode))
		if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnprocessableEntity {
			m.wrong = append(m.wrong, fmt.Sprint(kind, " ", response.StatusCode))
		}
		m.mu.Unlock()
	}
	if kill {
		go m.restart()
		return nil, errKilled
	}
	return response, err
}

func (m *mover) restart() {
	m.mu.Lock()
	stop, calm := m.stop, m.calm
	m.mu.Unlock()
	stop()
	if !calm {
		m.begin()
	}
}

// kindOf names a changing request by what it changes, with the number of annotations that it names.
func (m *mover) kindOf(r *http.Request) string {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") || r.URL.Query().Get("dryRun") != "" {
		return ""
	}
	body := ""
	if r.Method == http.MethodPatch && r.GetBody != nil {
		if reader, err := r.GetBody(); err == nil {
			text, _ := io.ReadAll(reader)
			for _, key := range []string{"finalizers", api.AnnotationMoveRecord, api.AnnotationMoveOffer, api.AnnotationHandedOver, api.AnnotationMoveAnswer, selected, api.AnnotationMoveStatus} {
				if strings.Contains(string(text), `"`+key+`":`) {
					body += " " + key
				}
			}
		}
	}
	parts := strings.Split(r.URL.Path, "/")
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims"} {
		for _, p := range parts {
			if p == resource {
				return r.Method + " " + resource + body
			}
		}
	}
	return ""
}

func (m *mover) expectKilled(t *testing.T, kinds ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, kind := range kinds {
		found := false
		for k := range m.killed {
			found = found || strings.HasPrefix(k, kind)
		}
		if !found {
			t.Errorf("no agent of %s was killed at %s; it sent %q", m.name, kind, m.sent)
		}
	}
}

// expectAllowed fails if the API server refused something that the agents wrote.
func (m *mover) expectAllowed(t *testing.T) {
	t.Helper()
	if len(m.wrong) > 0 {
		t.Errorf("%s was refused: %q of %q", m.name, m.wrong, m.sent)
	}
}

// provisioned makes a bound claim, and the volume that csi-provisioner would have made for it.
func (m *mover) provisioned(t *testing.T, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations[selected] = m.name
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = driver
	})
	volume := m.disks.make("pvc-"+string(claim.UID), claim.Namespace+"/"+claim.Name)
	dropAtEnd(t, claim, volume.Name)
	_, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume.Name, Annotations: map[string]string{api.AnnotationProvisionedBy: driver}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "thin", AccessModes: claim.Spec.AccessModes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			Capacity: claim.Spec.Resources.Requests,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: volume.ID.String(),
				VolumeAttributes: map[string]string{api.AttributeUUID: volume.UUID, api.AttributeVolumeGroup: "vg"}}},
			NodeAffinity: affinityTo(m.name),
		}}, metav1.CreateOptions{})
	must(t, err)
	patchClaim(t, claim, "", fmt.Sprintf(bindByHand, volume.Name))
	return until(t, claim, "is bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
}

// expectOn waits until a claim is bound to a volume of a node, with nothing of a move left.
func expectOn(t *testing.T, claim *corev1.PersistentVolumeClaim, m *mover) {
	t.Helper()
	soon(t, claim.Name+" is on "+m.name, func() bool {
		pv, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil || pending.NodeOf(pv) != m.name || pv.Status.Phase != corev1.VolumeBound || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			return false
		}
		l := m.disks.find(claim.Spec.VolumeName)
		return pv.Annotations[api.AnnotationMoveRecord] == "" && len(pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions) == 1 &&
			l != nil && l.State == lvm.StateReady && l.Record == "" && l.ID.String() == pv.Spec.CSI.VolumeHandle
	})
	now := until(t, claim, "is bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
	if now.Annotations[selected] != m.name || now.Status.Capacity.Storage().String() != "1Gi" {
		t.Errorf("the claim has %v and %v", now.Annotations, now.Status.Capacity)
	}
}
