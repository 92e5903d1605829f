package attributes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// cluster is an API server with one claim, its PersistentVolume and some classes, and the node's volumes. It records, in order, what it is
// asked to change.
type cluster struct {
	mu      sync.Mutex
	claim   *corev1.PersistentVolumeClaim
	pv      *corev1.PersistentVolume
	classes map[string]*storagev1.VolumeAttributesClass
	refuse  map[string]bool // of changes, by their text: the API server fails
	set     error           // of SetLimits
	changes []string
	gets    int // of classes
}

func newCluster(t *testing.T, claim *corev1.PersistentVolumeClaim) (*cluster, *Modifier) {
	t.Helper()
	c := &cluster{claim: claim, pv: kubetest.VolumeOn("node-1", "data"), refuse: map[string]bool{}, classes: map[string]*storagev1.VolumeAttributesClass{
		"gold": class("gold", "readIOPS", "1k"), "silver": class("silver", "readIOPS", "100"), "bad": class("bad", "iops", "5"),
	}}
	c.pv.Spec.CSI.VolumeAttributes = map[string]string{api.AttributeUUID: "uuid"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/persistentvolumes/{name}", func(w http.ResponseWriter, _ *http.Request) { c.serve(w, c.pv) })
	mux.HandleFunc("GET /apis/storage.k8s.io/v1/volumeattributesclasses/{name}", func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		found := c.classes[r.PathValue("name")]
		c.gets++
		c.mu.Unlock()
		if found == nil {
			kubetest.Reply(w, http.StatusNotFound, apierrors.NewNotFound(schema.GroupResource{}, "class").Status())
			return
		}
		c.serve(w, found)
	})
	mux.HandleFunc("PATCH /api/v1/persistentvolumes/{name}", func(w http.ResponseWriter, r *http.Request) { c.patch(w, r, "PersistentVolume", &c.pv) })
	mux.HandleFunc("PATCH /api/v1/namespaces/ns/persistentvolumeclaims/{name}/status", func(w http.ResponseWriter, r *http.Request) { c.patch(w, r, "claim", &c.claim) })
	mux.HandleFunc("POST /api/v1/namespaces/ns/events", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // protobuf
		event := &corev1.Event{}
		_, _, _ = serializer.NewCodecFactory(kubeclient.NewScheme()).UniversalDeserializer().Decode(body, nil, event)
		c.note(event.Type + " " + event.Reason)
		event.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
		kubetest.Reply(w, http.StatusCreated, event)
	})
	mux.HandleFunc("PATCH /api/v1/namespaces/ns/events/{name}", func(w http.ResponseWriter, _ *http.Request) {
		c.note("event again")
		kubetest.Reply(w, http.StatusOK, &corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}})
	})
	server := httptest.NewServer(mux)
	client := kubetest.ClientOf(t, server)
	return c, c.modifier(client)
}

// modifier returns a Modifier that remembers nothing.
func (c *cluster) modifier(client *kubeclient.Client) *Modifier {
	return New(Config{Client: client, Node: "node-1", Limits: c, Log: slog.New(slog.DiscardHandler), Events: &kubeclient.EventRecorder{Client: client, Node: "node-1", Counts: map[string]kubeclient.EventCount{}},
		Check: func(context.Context, *corev1.PersistentVolume) error { return nil }})
}

func class(name string, parameters ...string) *storagev1.VolumeAttributesClass {
	c := &storagev1.VolumeAttributesClass{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "VolumeAttributesClass"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: api.DriverName, Parameters: map[string]string{}}
	for i := 0; i < len(parameters); i += 2 {
		c.Parameters[parameters[i]] = parameters[i+1]
	}
	return c
}

func (c *cluster) SetLimits(_ context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, "limits: "+limits.String())
	if id.LV != "pvc-data" || uuid != "uuid" {
		return lvm.Volume{}, fmt.Errorf("another volume: %s, %s", id, uuid)
	}
	return lvm.Volume{ID: id, Limits: limits}, c.set
}

func (c *cluster) note(change string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, change)
}

func (c *cluster) serve(w http.ResponseWriter, object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kubetest.Reply(w, http.StatusOK, object)
}

// patch applies a merge patch (RFC 7386), and refuses one of an older version of the claim.
func (c *cluster) patch(w http.ResponseWriter, r *http.Request, what string, object any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var change map[string]any
	if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := what + ": " + changeIn(change)
	c.changes = append(c.changes, text)
	if c.refuse[text] {
		kubetest.Reply(w, http.StatusInternalServerError, apierrors.NewInternalError(errors.New("refused")).Status())
		return
	}
	metadata, _ := change["metadata"].(map[string]any)
	if version, there := metadata["resourceVersion"]; there && version != c.claim.ResourceVersion {
		kubetest.Reply(w, http.StatusConflict, apierrors.NewConflict(schema.GroupResource{}, what, nil).Status())
		return
	}
	delete(change, "metadata")
	before, _ := json.Marshal(object)
	var fields map[string]any
	_ = json.Unmarshal(before, &fields)
	after, _ := json.Marshal(merge(fields, change))
	switch object := object.(type) {
	case **corev1.PersistentVolumeClaim:
		*object = &corev1.PersistentVolumeClaim{}
		_ = json.Unmarshal(after, *object)
		(*object).ResourceVersion += "'"
		kubetest.Reply(w, http.StatusOK, *object)
	case **corev1.PersistentVolume:
		*object = &corev1.PersistentVolume{}
		_ = json.Unmarshal(after, *object)
		kubetest.Reply(w, http.StatusOK, *object)
	}
}

func merge(object, change map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for key, value := range change {
		switch part, is := value.(map[string]any); {
		case is:
			was, _ := object[key].(map[string]any)
			object[key] = merge(was, part)
		case value == nil:
			delete(object, key)
		default:
			object[key] = value
		}
	}
	return object
}

// changeIn describes a patch of a claim's status or of a PersistentVolume.
func changeIn(change map[string]any) string {
	if spec, is := change["spec"].(map[string]any); is {
		return fmt.Sprint("class ", spec["volumeAttributesClassName"])
	}
	status, _ := change["status"].(map[string]any)
	var words []string
	if progress, is := status["modifyVolumeStatus"].(map[string]any); is {
		words = append(words, strings.TrimSpace(fmt.Sprint(progress["status"], " ", cmpOr(progress["targetVolumeAttributesClassName"]))))
	}
	if current, is := status["currentVolumeAttributesClassName"]; is {
		words = append(words, fmt.Sprint("current ", current))
	}
	list, is := status["conditions"].([]any)
	for _, c := range list {
		words = append(words, fmt.Sprint(c.(map[string]any)["type"]))
	}
	if is && len(list) == 0 {
		words = append(words, "no conditions")
	}
	return strings.Join(words, ", ")
}

func cmpOr(value any) any {
	if value == nil {
		return ""
	}
	return value
}

// run calls Modify for the claim as it is now, and checks what it changed.
func (c *cluster) run(t *testing.T, m *Modifier, again time.Duration, fails string, want ...string) {
	t.Helper()
	c.changes = nil
	left, err := m.Modify(t.Context(), c.claim)
	if (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
		t.Errorf("error %v, want %q", err, fails)
	}
	if left > again || again > 0 && left < again-time.Second {
		t.Errorf("again after %s, want %s", left, again)
	}
	if diff := cmp.Diff(want, c.changes); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const (
	goldSet    = "limits: readIOPS: 1000"
	silverSet  = "limits: readIOPS: 100"
	begun      = "Normal VolumeModify"
	successful = "Normal VolumeModifySuccessful"
	failed     = "Warning VolumeModifyFailed"
)

// done are the changes at the end of a successful change, in order.
func done(class string) []string {
	return []string{"PersistentVolume: class " + class, "claim: current " + class + ", no conditions", successful}
}

func TestModify(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	c.run(t, m, 0, "", slices.Concat([]string{"claim: InProgress gold, ModifyingVolume", begun, goldSet}, done("gold"))...)
	if ptr.Deref(c.claim.Status.CurrentVolumeAttributesClassName, "") != "gold" || c.claim.Status.ModifyVolumeStatus != nil || ptr.Deref(c.pv.Spec.VolumeAttributesClassName, "") != "gold" {
		t.Errorf("the claim has %+v, the PersistentVolume %q", c.claim.Status, ptr.Deref(c.pv.Spec.VolumeAttributesClassName, ""))
	}
	c.run(t, m, 0, "")
	name := "silver"
	c.claim.Spec.VolumeAttributesClassName = &name
	c.run(t, m, 0, "", "claim: InProgress silver, ModifyingVolume", "event again", silverSet, "PersistentVolume: class silver", "claim: current silver, no conditions", "event again")
}

// TestMissingClass: the claim waits for its class, with growing pauses and one request each, and continues when the class exists.
func TestMissingClass(t *testing.T) {
	c, m := newCluster(t, asking("later", "silver", "", ""))
	c.run(t, m, missingFirst, "", "claim: Pending", failed)
	c.run(t, m, missingFirst, "")
	if c.gets != 1 {
		t.Errorf("%d requests for the class during one pause", c.gets)
	}
	expire(m)
	c.run(t, m, 2*missingFirst, "", "event again")
	for range 10 {
		expire(m)
		if again, err := m.Modify(t.Context(), c.claim); err != nil || again > missingMost {
			t.Errorf("again after %s, %v", again, err)
		}
	}
	c.classes["later"] = class("later", "readIOPS", "max")
	expire(m)
	c.run(t, m, 0, "", slices.Concat([]string{"claim: InProgress later, ModifyingVolume", begun, "limits: none"}, done("later"))...)
}

// expire ends all pauses.
func expire(m *Modifier) {
	for uid, p := range m.paused {
		p.until = time.Time{}
		m.paused[uid] = p
	}
}

// TestInfeasible: an impossible class is tried again seldom; another one at once, and the old one cancels.
func TestInfeasible(t *testing.T) {
	c, m := newCluster(t, asking("bad", "silver", "", ""))
	infeasible := []string{"claim: InProgress bad, ModifyingVolume", begun, "claim: Infeasible bad, ModifyingVolume, ModifyVolumeError", failed}
	c.run(t, m, infeasibleFor, "", infeasible...)
	reason := condition(c.claim, corev1.PersistentVolumeClaimVolumeModifyVolumeError)
	if reason == nil || reason.Reason != "InvalidArgument" || !strings.Contains(reason.Message, `"iops"`) {
		t.Errorf("the condition is %+v", reason)
	}
	c.run(t, m, infeasibleFor, "")
	expire(m)
	c.run(t, m, infeasibleFor, "", "claim: InProgress bad, ModifyingVolume, ModifyVolumeError", "event again", "claim: Infeasible bad, ModifyingVolume, ModifyVolumeError", "event again")
	name := "silver"
	c.claim.Spec.VolumeAttributesClassName = &name
	c.run(t, m, 0, "", slices.Concat([]string{"claim: InProgress silver, ModifyingVolume, ModifyVolumeError", "event again", silverSet}, done("silver"))...)
}

// TestInfeasibleOnThisNode: a node that cannot apply limits, and a class of another driver.
func TestInfeasibleOnThisNode(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	c.set = lvm.Errorf(lvm.KindInvalid, "no io controller")
	c.run(t, m, infeasibleFor, "", "claim: InProgress gold, ModifyingVolume", begun, goldSet, "claim: Infeasible gold, ModifyingVolume, ModifyVolumeError", failed)
	c, m = newCluster(t, asking("gold", "", "", ""))
	c.classes["gold"].DriverName = "ebs.csi.aws.com"
	c.run(t, m, infeasibleFor, "", "claim: InProgress gold, ModifyingVolume", begun, "claim: Infeasible gold, ModifyingVolume, ModifyVolumeError", failed)
}

// TestUncertain: after a result that leaves the change under way, its target comes first, whatever the claim names.
func TestUncertain(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	c.set = lvm.Errorf(lvm.KindBusy, "a disk is away")
	c.run(t, m, 0, "a disk is away", "claim: InProgress gold, ModifyingVolume", begun, goldSet) // it may be an expansion that ends soon
	c.run(t, m, 0, "a disk is away", goldSet, "claim: InProgress gold, ModifyingVolume, ModifyVolumeError", failed)
	name := "silver"
	c.claim.Spec.VolumeAttributesClassName = &name
	c.run(t, m, 0, "a disk is away", goldSet, "event again")
	c.set = nil
	c.run(t, m, 0, "", slices.Concat([]string{goldSet}, done("gold"))...)
	c.run(t, m, 0, "", "claim: InProgress silver, ModifyingVolume", "event again", silverSet, "PersistentVolume: class silver", "claim: current silver, no conditions", "event again")
}

// TestFailedForCertain: after such a failure the claim may name another class, and a retry writes nothing new.
func TestFailedForCertain(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	c.set = lvm.Errorf(lvm.KindConflict, "no room for a tag")
	c.run(t, m, 0, "no room", "claim: InProgress gold, ModifyingVolume", begun, goldSet, "claim: InProgress gold, ModifyingVolume, ModifyVolumeError", failed)
	c.run(t, m, 0, "no room", goldSet, "event again")
	name := "silver"
	c.claim.Spec.VolumeAttributesClassName, c.set = &name, nil
	c.run(t, m, 0, "", slices.Concat([]string{"claim: InProgress silver, ModifyingVolume, ModifyVolumeError", "event again", silverSet}, done("silver"))...)
}

// TestRestart: for a new process each change in progress is uncertain.
func TestRestart(t *testing.T) {
	c, m := newCluster(t, asking("silver", "", isInProgress, "gold", corev1.PersistentVolumeClaimVolumeModifyingVolume))
	c.run(t, m, 0, "", slices.Concat([]string{goldSet}, done("gold"))...)
	c, m = newCluster(t, asking("silver", "", isInProgress, "lost"))
	c.run(t, m, 0, `"lost" does not exist`, failed)
}

// TestInterrupted: whatever request fails, the next attempt ends the change, and the claim never names a class before its PersistentVolume.
func TestInterrupted(t *testing.T) {
	for _, at := range []string{"claim: InProgress gold, ModifyingVolume", "PersistentVolume: class gold", "claim: current gold, no conditions"} {
		c, m := newCluster(t, asking("gold", "", "", ""))
		c.refuse[at] = true
		if _, err := m.Modify(t.Context(), c.claim); err == nil {
			t.Errorf("%s: no error", at)
		}
		c.refuse = map[string]bool{}
		again := c.modifier(m.Client)
		if _, err := again.Modify(t.Context(), c.claim); err != nil || ptr.Deref(c.claim.Status.CurrentVolumeAttributesClassName, "") != "gold" || ptr.Deref(c.pv.Spec.VolumeAttributesClassName, "") != "gold" {
			t.Errorf("%s: %v, %+v", at, err, c.claim.Status)
		}
	}
}

// TestChangedMeanwhile: an older version of the claim is refused, and nothing of it decides.
func TestChangedMeanwhile(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	old := c.claim.DeepCopy()
	c.claim.ResourceVersion = "2"
	if _, err := m.Modify(t.Context(), old); !apierrors.IsConflict(err) || slices.Contains(c.changes, goldSet) {
		t.Errorf("%v, %q", err, c.changes)
	}
}

func TestCancel(t *testing.T) {
	c, m := newCluster(t, asking("", "", isImpossible, "gold", corev1.PersistentVolumeClaimVolumeModifyingVolume, corev1.PersistentVolumeClaimVolumeModifyVolumeError))
	c.run(t, m, 0, "", "claim: ModifyVolumeError", "Normal VolumeModifyCanceled")
	c.run(t, m, 0, "")
}

// TestVolumeOfAnother: a claim whose volume is elsewhere, or whose PersistentVolume another claim has, costs one request and no change.
func TestVolumeOfAnother(t *testing.T) {
	for what, change := range map[string]func(*corev1.PersistentVolume){
		"another node's":   func(pv *corev1.PersistentVolume) { *pv = *kubetest.VolumeOn("node-2", "data") },
		"another claim's":  func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "x" },
		"another driver's": func(pv *corev1.PersistentVolume) { pv.Spec.CSI.Driver = "ebs.csi.aws.com" },
	} {
		c, m := newCluster(t, asking("gold", "", "", ""))
		change(c.pv)
		c.run(t, m, 0, "")
		if c.gets > 0 {
			t.Errorf("%s: it reads the class", what)
		}
	}
	c, m := newCluster(t, asking("gold", "", "", ""))
	m.Check = func(context.Context, *corev1.PersistentVolume) error { return errors.New("two have the handle") }
	c.run(t, m, 0, "two have the handle")
}

// TestVolumeThatMoves: the attributes change after the move.
func TestVolumeThatMoves(t *testing.T) {
	c, m := newCluster(t, asking("gold", "", "", ""))
	c.pv.Annotations = map[string]string{api.AnnotationMoveRecord: "a record"}
	c.run(t, m, missingMost, "")
}

// TestMemory: claims that fail and are then deleted do not use more and more memory.
func TestMemory(t *testing.T) {
	_, m := newCluster(t, asking("gold", "", "", ""))
	for i := range 3 * remembered {
		uid := kubetest.TypesUID(fmt.Sprint(i))
		m.noteFailure(uid, isCertain)
		m.pause(uid, "gold", time.Second, time.Second)
	}
	if len(m.failures) > remembered || len(m.paused) > remembered {
		t.Errorf("it remembers %d and %d claims", len(m.failures), len(m.paused))
	}
}
