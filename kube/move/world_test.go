package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
	"github.com/nodelvm/nodelvm/pending"
)

// world is an API server with Kubernetes' PersistentVolume controller and csi-provisioner, and two nodes with their volume groups: as much of them as
// a move meets. Its clock stands still unless a test moves it.
type world struct {
	claims map[string]*corev1.PersistentVolumeClaim
	pvs    map[string]*corev1.PersistentVolume
	pods   map[string]*corev1.Pod
	nodes  map[string]*disks
	agents map[string]*Agent

	snapshots map[string][]string // names, by namespace, node and handle of the volume

	version int
	holds   int
	now     time.Time
	ahead   time.Duration   // of the nodes' clocks, before that of the API server
	acked   map[string]int  // by name of the PersistentVolume: the writes that a pod has flushed
	deleted map[string]bool // by name of the PersistentVolume: the user deleted the claim under the policy Delete

	class *storagev1.StorageClass // nil: it was deleted

	before func() error // called before each request and call of an agent; an error is its result
	after  func() error // the same, afterwards: the request was carried out
}

// disks are a node's volume group, and the engine of its agent.
type disks struct {
	w    *world
	node string
	vols map[string]*vol
	full bool
	busy string // other copies come first

	noRoom  bool // for rounds
	useless bool // its rounds
	slow    bool // to compare rounds, and the volume with them
}

type vol struct {
	Local
	content int
	left    int // steps of the copy, of size
	size    int
	open    bool

	rounds map[string]int // the content of each round
	wrong  bool           // a copy of changes was written over other content than they belong to
}

const group = "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGG"

// live gives the agents the time of the test's bubble, and these claims.
func (w *world) live(t *testing.T, claims ...string) {
	for _, a := range w.agents {
		t.Cleanup(a.queue.ShutDown)
		a.now = time.Now
		for _, claim := range claims {
			a.Observe(w.claims[claim], false)
		}
	}
}

// work has the agents take rounds for some time, as often as they ask for, beside the cluster's controllers.
func (w *world) work(t *testing.T, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		again := lookLater
		for _, a := range w.agents {
			if next := a.round(t.Context(), "ns"); next > 0 {
				again = min(again, next)
			}
			w.now = time.Now()
			w.reconcile()
		}
		time.Sleep(again)
	}
}

func newWorld(policy corev1.PersistentVolumeReclaimPolicy, claims ...string) *world {
	w := &world{
		claims: map[string]*corev1.PersistentVolumeClaim{}, pvs: map[string]*corev1.PersistentVolume{}, pods: map[string]*corev1.Pod{},
		nodes: map[string]*disks{}, agents: map[string]*Agent{}, acked: map[string]int{}, deleted: map[string]bool{}, now: time.Unix(1e9, 0),
		before: func() error { return nil }, after: func() error { return nil },
		class: &storagev1.StorageClass{Provisioner: api.DriverName, Parameters: map[string]string{"volumeGroup": "vg"}},
	}
	w.class.Name = "fast"
	w.addNode("node-1")
	w.addNode("node-2")
	for _, name := range claims {
		w.provision(name, policy)
	}
	w.pods["db-0"] = podOf("db-0", claims...)
	w.reconcile()
	return w
}

func (w *world) addNode(name string) {
	w.nodes[name] = &disks{w: w, node: name, vols: map[string]*vol{}}
	w.agents[name] = w.newAgent(name)
}

func (w *world) nodeNames() []string { return slices.Sorted(maps.Keys(w.nodes)) }

func (w *world) newAgent(node string) *Agent {
	a := New(Config{Engine: w.nodes[node], Node: node, Grace: time.Hour, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	a.objects, a.now = objects{w}, func() time.Time { return w.now }
	a.review = func(context.Context, string) (string, string, error) { return "", "", errors.New("unused") }
	return a
}

func podOf(name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	for _, c := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return pod
}

// provision makes a claim with a volume on node-1.
func (w *world) provision(name string, policy corev1.PersistentVolumeReclaimPolicy) {
	class, mode := "fast", corev1.PersistentVolumeFilesystem
	uid := types.UID("uid-" + name)
	pvName := "pvc-" + string(uid)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	w.claims[name] = &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, Annotations: map[string]string{api.AnnotationSelectedNode: "node-1"}, ResourceVersion: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: pvName, VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}
	v := &vol{Local: Local{Volume: lvm.Volume{ID: lvm.ID{VG: group + "1", LV: pvName}, UUID: "lv-1-" + name, Name: pvName, Claim: "ns/" + name, Group: "vg", State: lvm.StateReady, Size: lvm.GiB}}}
	w.nodes["node-1"].vols[pvName] = v
	r := &Record{From: "node-1", Namespace: "ns", Claim: name, UID: uid, Handle: v.ID.String(), UUID: v.UUID, Group: "vg", Capacity: "1Gi", Class: class,
		Modes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, FSType: "ext4", MountOptions: []string{"noatime"}, Attributes: map[string]string{"storage.kubernetes.io/csiProvisionerIdentity": "x"}}
	pv := r.onSource(false)
	pv.Annotations = map[string]string{api.AnnotationProvisionedBy: api.DriverName}
	pv.Spec.PersistentVolumeReclaimPolicy = policy
	w.put(pv)
}

// put creates a PersistentVolume, as the API server does.
func (w *world) put(pv *corev1.PersistentVolume) {
	w.version++
	pv = pv.DeepCopy()
	pv.UID, pv.ResourceVersion, pv.Status.Phase = types.UID(strconv.Itoa(w.version)), strconv.Itoa(w.version), corev1.VolumePending
	pv.Finalizers = []string{"kubernetes.io/pv-protection"}
	w.pvs[pv.Name] = pv
}

func (w *world) touch(o metav1.Object) {
	w.version++
	o.SetResourceVersion(strconv.Itoa(w.version))
}

// reconcile does what Kubernetes' controllers and csi-provisioner do.
func (w *world) reconcile() {
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		claim := w.claims[name]
		pv := w.pvs[claim.Spec.VolumeName]
		switch {
		case pv == nil || !names(pv, claim):
			if claim.Status.Phase != corev1.ClaimLost {
				claim.Status.Phase, claim.Status.Capacity, claim.Status.CurrentVolumeAttributesClassName = corev1.ClaimLost, nil, nil
				w.touch(claim)
			}
		case claim.Status.Phase != corev1.ClaimBound || pv.Status.Phase != corev1.VolumeBound:
			if claim.Status.Phase != corev1.ClaimBound {
				claim.Status.Capacity = pv.Spec.Capacity.DeepCopy()
			}
			claim.Status.Phase, pv.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
			w.touch(claim)
			w.touch(pv)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.pvs)) {
		w.reclaim(w.pvs[name])
	}
}

func (w *world) reclaim(pv *corev1.PersistentVolume) {
	claim := w.claims[pv.Spec.ClaimRef.Name]
	if claim != nil && claim.UID == pv.Spec.ClaimRef.UID {
		return
	}
	if pv.Status.Phase != corev1.VolumeReleased {
		pv.Status.Phase = corev1.VolumeReleased
		w.touch(pv)
	}
	if pv.DeletionTimestamp != nil {
		delete(w.pvs, pv.Name)
		return
	}
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || isParked(pv) {
		return
	}
	d := w.nodes[pending.NodeOf(pv)]
	if v := d.vols[pv.Name]; v != nil && v.ID.String() == pv.Spec.CSI.VolumeHandle {
		if v.State != lvm.StateReady || v.open || !w.deleted[pv.Name] {
			return // DeleteVolume refuses
		}
		delete(d.vols, pv.Name)
	}
	delete(w.pvs, pv.Name)
}

// objects are the requests of the agents.
type objects struct{ w *world }

func (o objects) request(do func() error) error {
	if err := o.w.before(); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return o.w.after()
}

func (o objects) Claim(_ context.Context, _, name string) (claim *corev1.PersistentVolumeClaim, err error) {
	err = o.w.before()
	if c := o.w.claims[name]; c != nil {
		claim = c.DeepCopy()
	}
	return claim, err
}

func (o objects) Volume(_ context.Context, name string) (pv *corev1.PersistentVolume, err error) {
	err = o.w.before()
	if p := o.w.pvs[name]; p != nil {
		pv = p.DeepCopy()
	}
	return pv, err
}

func (o objects) Class(context.Context, string) (*storagev1.StorageClass, error) {
	return o.w.class, nil
}

func (o objects) Pods(context.Context, string) (pods []corev1.Pod, err error) {
	for _, name := range slices.Sorted(maps.Keys(o.w.pods)) {
		pods = append(pods, *o.w.pods[name].DeepCopy())
	}
	return pods, o.w.before()
}

func (o objects) RunsDriver(_ context.Context, node string) (bool, error) {
	return o.w.nodes[node] != nil, nil
}

func (o objects) Now(context.Context, string) (time.Time, error) {
	return o.w.now.Add(-o.w.ahead), o.w.before()
}

func (o objects) Snapshots(_ context.Context, namespace, node, volume string) ([]string, error) {
	return o.w.snapshots[namespace+"/"+node+"/"+volume], o.w.before()
}

func (o objects) CreateVolume(_ context.Context, pv *corev1.PersistentVolume, dryRun bool) error {
	if dryRun {
		return nil
	}
	return o.request(func() error {
		if o.w.pvs[pv.Name] != nil {
			return apierrors.NewAlreadyExists(schema.GroupResource{}, pv.Name)
		}
		pv = pv.DeepCopy()
		pv.CreationTimestamp = metav1.NewTime(o.w.now)
		o.w.put(pv)
		return nil
	})
}

var errConflict = apierrors.NewConflict(schema.GroupResource{}, "", errors.New("changed"))

// find returns a PersistentVolume if it has not changed since.
func (o objects) find(pv *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	now := o.w.pvs[pv.Name]
	if now == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, pv.Name)
	}
	if now.ResourceVersion != pv.ResourceVersion {
		return nil, errConflict
	}
	return now, nil
}

func (o objects) PatchVolume(_ context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy, dropFinalizers bool) error {
	return o.request(func() error {
		now, err := o.find(pv)
		if err != nil {
			return err
		}
		set(now.Annotations, annotations)
		if policy != "" {
			now.Spec.PersistentVolumeReclaimPolicy = policy
		}
		if dropFinalizers {
			now.Finalizers = nil
			if now.DeletionTimestamp != nil {
				delete(o.w.pvs, pv.Name)
			}
		}
		o.w.touch(now)
		return nil
	})
}

func set(annotations map[string]string, changes map[string]any) {
	for k, value := range changes {
		if text, ok := value.(string); ok {
			annotations[k] = text
		} else {
			delete(annotations, k)
		}
	}
}

func (o objects) DeleteVolume(_ context.Context, pv *corev1.PersistentVolume) error {
	return o.request(func() error {
		now, err := o.find(pv)
		if err != nil {
			return err
		}
		when := metav1.NewTime(o.w.now)
		now.DeletionTimestamp = &when
		o.w.touch(now)
		return nil
	})
}

func (o objects) PatchClaim(_ context.Context, claim *corev1.PersistentVolumeClaim, subresource string, p kubeclient.Patch) error {
	return o.request(func() error {
		now := o.w.claims[claim.Name]
		if now == nil || now.UID != claim.UID {
			return apierrors.NewNotFound(schema.GroupResource{}, claim.Name)
		}
		if now.ResourceVersion != claim.ResourceVersion {
			return errConflict
		}
		set(now.Annotations, p.Annotations)
		if class, ok := p.Status["currentVolumeAttributesClassName"].(string); ok && subresource == "status" {
			now.Status.CurrentVolumeAttributesClassName = &class
		}
		o.w.touch(now)
		return nil
	})
}

// call is a call of the engine.
func (d *disks) call(id lvm.ID, do func(*vol) error) error {
	return objects{d.w}.request(func() error {
		v := d.vols[id.LV]
		if v == nil || v.ID != id {
			return lvm.Errorf(lvm.KindNotFound, "no volume %s", id)
		}
		return do(v)
	})
}

// to changes a volume's state if it is in one of these.
func (v *vol) to(state lvm.VolumeState, from ...lvm.VolumeState) error {
	if v.State == state {
		return nil
	}
	if !slices.Contains(from, v.State) {
		return lvm.Errorf(lvm.KindConflict, "%s is %s", v.ID, v.State)
	}
	v.State = state
	return nil
}

func (d *disks) Volumes(context.Context) (list []Local, err error) {
	for _, name := range slices.Sorted(maps.Keys(d.vols)) {
		list = append(list, d.vols[name].Local)
	}
	return list, nil
}

func (d *disks) Note(_ context.Context, id lvm.ID, _, record string) error {
	return d.call(id, func(v *vol) error { v.Record = record; return nil })
}

func (d *disks) Key() string { return "key of " + d.node }

func (d *disks) Hold(_ context.Context, id lvm.ID, _ string) (o Offer, err error) {
	err = d.call(id, func(v *vol) error {
		if v.open {
			return lvm.Errorf(lvm.KindInUse, "%s is open", id)
		}
		if v.State == lvm.StateReady {
			d.w.holds++
			v.State, v.Move = stateMoving, fmt.Sprint("hold ", d.w.holds)
		}
		if v.State != stateMoving {
			return lvm.Errorf(lvm.KindConflict, "%s is %s", id, v.State)
		}
		since := ""
		if len(v.Rounds) > 0 && d.slow {
			return lvm.Errorf(lvm.KindBusy, "%s: %w", id, move.ErrComparing)
		}
		if n := len(v.Rounds); n > 0 && !d.useless {
			since = v.Rounds[n-1].Move
		}
		o = d.offerOf(v, v.Move, since, false)
		return nil
	})
	return o, err
}

func (d *disks) Cancel(_ context.Context, id lvm.ID, _ string) error {
	return d.call(id, func(v *vol) error { return v.to(lvm.StateReady, stateMoving) })
}

func (d *disks) HandOver(_ context.Context, id lvm.ID, _, move string) error {
	return d.call(id, func(v *vol) error {
		if v.Move != move {
			return lvm.Errorf(lvm.KindConflict, "another hold")
		}
		return v.to(stateMoved, stateMoving)
	})
}

func (d *disks) Remove(_ context.Context, id lvm.ID, _ string) error {
	return d.call(id, func(v *vol) error {
		if v.State != stateMoved {
			return lvm.Errorf(lvm.KindConflict, "%s is %s", id, v.State)
		}
		delete(d.vols, id.LV)
		return nil
	})
}

func (d *disks) Receive(_ context.Context, o Offer, _ Offered, _ map[string]string) (p Progress, err error) {
	err = objects{d.w}.request(func() error {
		var from simulatedOffer
		if err := json.Unmarshal(o.Text, &from); err != nil {
			return err
		}
		v := d.vols[from.Volume]
		if v == nil && d.full {
			return lvm.Errorf(lvm.KindInsufficientCapacity, "no room on %s", d.node)
		}
		if v == nil {
			v = &vol{Local: Local{Volume: lvm.Volume{ID: lvm.ID{VG: lvm.VGUUID(group + d.node[5:]), LV: from.Volume}, UUID: fmt.Sprint("lv-", d.node, d.w.holds), Name: from.Volume, Group: "vg", State: stateReceiving}}}
			d.vols[from.Volume] = v
		}
		if v.State != stateReceiving && (v.State != stateReceived || v.Move != o.Move) {
			return lvm.Errorf(lvm.KindExists, "%s is %s", v.ID, v.State)
		}
		v.begin(o.Move, from.Since)
		if d.busy != "" {
			p = Progress{Move: o.Move, Total: lvm.Bytes(v.size) * lvm.GiB, Problem: errors.New(d.busy), Queued: true}
			return nil
		}
		if source := d.w.nodes[from.Node].vols[from.Volume]; !v.copy(source, o, from.Since) {
			p.Problem = errors.New("the source does not serve it")
		}
		p.Move, p.Done, p.Total = o.Move, lvm.Bytes(v.size-v.left)*lvm.GiB, lvm.Bytes(v.size)*lvm.GiB
		return nil
	})
	return p, err
}

func (d *disks) Finish(_ context.Context, id lvm.ID, _ string) error {
	return d.call(id, func(v *vol) error { return v.to(lvm.StateReady, stateReceived) })
}

func (d *disks) Discard(_ context.Context, id lvm.ID, _ string) error {
	return d.call(id, func(v *vol) error {
		if v.State != stateReceiving && v.State != stateReceived {
			return lvm.Errorf(lvm.KindConflict, "%s is %s", id, v.State)
		}
		delete(d.vols, id.LV)
		return nil
	})
}

// simulatedOffer is the text of an offer.
type simulatedOffer struct{ Node, Volume, Since string }

func (d *disks) offerOf(v *vol, move, since string, round bool) Offer {
	text, err := json.Marshal(simulatedOffer{d.node, v.Name, since})
	if err != nil {
		panic(err)
	}
	return Offer{Move: move, Round: round, Text: text}
}

// begin is what alloc.PlanReceive decides.
func (v *vol) begin(move, since string) {
	l := &v.Volume
	switch {
	case v.Move == move && (v.State == stateReceived || l.Base == "" || l.Base == move || l.Base == since):
	case v.Move != move && since != "" && l.Base == since && v.Move == since:
		v.Move, v.State, v.left, v.size = move, stateReceiving, 1, 1
	default:
		v.Move, l.Base, v.State, v.left, v.size, v.content = move, "", stateReceiving, 2, 2, -1
	}
	l.Move = v.Move
}

// copy copies a part of what an offer is of, if the source serves that.
func (v *vol) copy(source *vol, o Offer, since string) bool {
	if v.State == stateReceived || v.Base == o.Move {
		return true
	}
	if source == nil {
		return false
	}
	content, serves := source.rounds[o.Move]
	if source.Move == o.Move && source.State == stateMoving {
		content, serves = source.content, true
	}
	base, knows := source.rounds[since]
	if !serves || v.Base != "" && !knows {
		return false
	}
	if v.left--; v.left > 0 {
		return true
	}
	if v.Base != "" && v.content != base {
		v.wrong = true
	}
	v.content = content
	if o.Round {
		v.Base = o.Move
	} else {
		v.State, v.Base = stateReceived, ""
	}
	return true
}

func (d *disks) TakeRound(_ context.Context, id lvm.ID, _ string, number int, before lvm.Bytes) error {
	return d.call(id, func(v *vol) error {
		switch {
		case d.noRoom:
			return lvm.Errorf(lvm.KindInsufficientCapacity, "no room for a snapshot on %s", d.node)
		case v.State != lvm.StateReady || v.Record == "":
			return lvm.Errorf(lvm.KindConflict, "%s is %s", id, v.State)
		case v.rounds == nil:
			v.rounds = map[string]int{}
		}
		d.w.holds++
		r := Round{Move: fmt.Sprint("round ", d.w.holds), Number: number, Before: before, Created: d.w.now}
		v.rounds[r.Move] = v.content
		v.Rounds = append(slices.Clone(v.Rounds), r)
		return nil
	})
}

func (d *disks) OfferRound(_ context.Context, of Local, round string) (o Offer, err error) {
	err = d.call(of.ID, func(v *vol) error {
		if d.useless {
			return lvm.Errorf(lvm.KindInternal, "nothing can be compared on %s", d.node)
		}
		i := slices.IndexFunc(v.Rounds, func(r Round) bool { return r.Move == round })
		since := ""
		if i > 0 && d.slow {
			return lvm.Errorf(lvm.KindBusy, "%s: %w", of.ID, move.ErrComparing)
		}
		if i > 0 {
			since = v.Rounds[i-1].Move
		}
		o = d.offerOf(v, round, since, true)
		return nil
	})
	return o, err
}

func (d *disks) DropRounds(_ context.Context, of Local, but string) error {
	return d.call(of.ID, func(v *vol) error {
		v.Rounds = slices.DeleteFunc(slices.Clone(v.Rounds), func(r Round) bool {
			if r.Move != but {
				delete(v.rounds, r.Move)
			}
			return r.Move != but
		})
		return nil
	})
}

func (d *disks) DropUnneeded(ctx context.Context) error {
	for _, v := range d.vols {
		if len(v.Rounds) > 0 && v.State != stateMoving && (v.State != lvm.StateReady || v.Record == "") {
			if err := d.DropRounds(ctx, v.Local, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// startPod schedules and starts the pod, if the scheduler and the driver let it.
func (w *world) startPod() {
	pod := w.pods["db-0"]
	if pod == nil || pod.Status.Phase == corev1.PodRunning {
		return
	}
	node := pod.Spec.NodeName
	for _, c := range pending.ClaimNames(pod) {
		claim := w.claims[c]
		if claim == nil || !isBound(claim, w.pvs[claim.Spec.VolumeName]) {
			return
		}
		pv := w.pvs[claim.Spec.VolumeName]
		on := pending.NodeOf(pv)
		if pod.Spec.NodeName == "" && (isParked(pv) || node != "" && node != on) {
			return
		}
		if pod.Spec.NodeName == "" {
			node = on
		}
	}
	pod.Spec.NodeName = node
	for _, c := range pending.ClaimNames(pod) {
		if v := w.nodes[node].vols[w.claims[c].Spec.VolumeName]; v == nil || v.State != lvm.StateReady || v.ID.String() != w.pvs[v.Name].Spec.CSI.VolumeHandle {
			return // NodeStage refuses
		}
	}
	for _, c := range pending.ClaimNames(pod) {
		w.nodes[node].vols[w.claims[c].Spec.VolumeName].open = true
	}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.now)}}}}
}

// write changes every volume of a running pod.
func (w *world) write() {
	pod := w.pods["db-0"]
	if pod == nil || pod.Status.Phase != corev1.PodRunning {
		return
	}
	for _, c := range pending.ClaimNames(pod) {
		if claim := w.claims[c]; claim != nil {
			w.nodes[pod.Spec.NodeName].vols[claim.Spec.VolumeName].content++
			w.acked[claim.Spec.VolumeName]++
		}
	}
}

// stopPod deletes the pod and its successor waits for a node, as of a StatefulSet. Forced, the volumes stay open until unstage.
func (w *world) stopPod(forced bool) {
	pod := w.pods["db-0"]
	if pod == nil {
		return
	}
	if !forced {
		w.unstage()
	}
	w.pods["db-0"] = podOf("db-0", pending.ClaimNames(pod)...)
	if !forced {
		w.unstage()
	}
}

// unstage closes the volumes that no running pod has.
func (w *world) unstage() {
	for _, d := range w.nodes {
		for _, v := range d.vols {
			used := false
			for _, pod := range w.pods {
				used = used || pod.Status.Phase == corev1.PodRunning && pod.Spec.NodeName == d.node && slices.ContainsFunc(pending.ClaimNames(pod), func(c string) bool { return w.claims[c] != nil && w.claims[c].Spec.VolumeName == v.Name })
			}
			v.open = v.open && used
		}
	}
}

// deleteClaim does what a user's deletion comes to, when no pod uses the claim.
func (w *world) deleteClaim(name string) {
	claim := w.claims[name]
	if claim == nil || slices.ContainsFunc(slices.Collect(maps.Values(w.pods)), func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && pending.UsesClaim(p, name) }) {
		return
	}
	w.deleted[claim.Spec.VolumeName] = true
	delete(w.claims, name)
}

// annotateClaim is what a user does.
func (w *world) annotateClaim(name, key, value string) {
	claim := w.claims[name]
	if claim == nil {
		return
	}
	if claim.Annotations[key] = value; value == "" {
		delete(claim.Annotations, key)
	}
	w.touch(claim)
}

// check is the invariant (doc.go).
func (w *world) check() error {
	for _, claim := range slices.Sorted(maps.Keys(w.acked)) {
		if err := w.checkVolume(claim); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) checkVolume(name string) error {
	var has []*vol
	text := ""
	for _, node := range w.nodeNames() {
		v := w.nodes[node].vols[name]
		if v == nil {
			continue
		}
		text += fmt.Sprintf("%s: %s, hold %q, content %d, open %v; ", node, v.State, v.Move, v.content, v.open)
		if v.wrong {
			return fmt.Errorf("%s has a copy whose parts do not fit together: %s", name, text)
		}
		if v.open && v.State != lvm.StateReady {
			return fmt.Errorf("%s is open but not ready: %s", name, text)
		}
		if v.State == lvm.StateReady || v.State == stateMoving {
			has = append(has, v)
		}
	}
	if len(has) == 0 { // between HandOver and Finish
		for _, d := range w.nodes {
			if v := d.vols[name]; v != nil && v.State == stateReceived && w.handedOver(v) {
				has = append(has, v)
			}
		}
	}
	switch {
	case len(has) > 1:
		return fmt.Errorf("%s exists twice: %s", name, text)
	case len(has) == 0 && w.deleted[name]:
	case len(has) == 0:
		return fmt.Errorf("%s is lost: %s", name, text)
	case has[0].content != w.acked[name]:
		return fmt.Errorf("%s lacks writes, %d were acknowledged: %s", name, w.acked[name], text)
	}
	return nil
}

func (w *world) handedOver(v *vol) bool {
	for _, d := range w.nodes {
		if s := d.vols[v.Name]; s != nil && s != v && s.State == stateMoved && s.Move == v.Move {
			return true
		}
	}
	return false
}

// makeThin makes all volumes thin: they are copied ahead.
func (w *world) makeThin() {
	for _, d := range w.nodes {
		for _, v := range d.vols {
			v.Class.Layout = lvm.LayoutThin
		}
	}
}
