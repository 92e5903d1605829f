package attributes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// Limits is what this package needs of the node's volumes.
type Limits interface {
	// SetLimits records the limits of a volume's I/O and has them applied to the pods that use it. It returns a volume that has them
	// unchanged. lvm.KindInvalid: this node cannot apply them; lvm.KindBusy: retry.
	SetLimits(ctx context.Context, id lvm.ID, uuid string, limits lvm.Limits) (lvm.Volume, error)
}

// Config configures a Modifier.
type Config struct {
	Client *kubeclient.Client
	Node   string // this node's name
	Limits Limits // this node's
	Events *kubeclient.EventRecorder
	Log    *slog.Logger // nil: slog.Default()
	// Check refuses a PersistentVolume whose handle another one has too.
	Check func(context.Context, *corev1.PersistentVolume) error
}

// Modifier changes the limits of this node's volumes. Its methods are safe for concurrent use, for one claim at a time. What it remembers
// may be lost at any time: then each change in progress counts as uncertain, and each infeasible one is tried again.
type Modifier struct {
	Config

	mu       sync.Mutex
	failures map[types.UID]failure // claims whose last change has failed
	paused   map[types.UID]pause   // claims with a class that is missing or infeasible
}

// failure is what is known of a change that has failed.
type failure int

const (
	isBusy    failure = iota + 1 // it may still be under way
	isCertain                    // it has certainly ended
)

// pause is the time until the next attempt for a claim, while it names the same class.
type pause struct {
	target string
	last   time.Duration
	until  time.Time
}

// Intervals between attempts while the class is missing or infeasible. external-resizer's are its resync period of ten minutes, and five
// minutes.
const (
	missingFirst  = 2 * time.Second
	missingMost   = time.Minute
	infeasibleFor = 5 * time.Minute
)

// remembered bounds the memory of a Modifier.
const remembered = 1000

// New creates a Modifier without sending a request.
func New(cfg Config) *Modifier {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &Modifier{Config: cfg, failures: map[types.UID]failure{}, paused: map[types.UID]pause{}}
}

// Modify does the next step for a bound claim. again is the time after which the caller repeats the call for the unchanged claim; 0: it need
// not. It writes nothing unless the volume is on this node.
func (m *Modifier) Modify(ctx context.Context, claim *corev1.PersistentVolumeClaim) (again time.Duration, err error) {
	next, target := planFor(claim, m.failureOf(claim.UID) != isCertain)
	if next == nothing {
		return 0, nil
	}
	if left := m.pauseLeft(claim.UID, target); left > 0 {
		return left, nil
	}
	pv, err := m.Client.Volume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil || kubeclient.Chain(pv, claim, m.Node) != nil {
		return 0, err
	}
	if pv.Annotations[api.AnnotationMoveRecord] != "" {
		return missingMost, nil // a volume that moves is changed afterwards, on its new node
	}
	if err := m.Check(ctx, pv); err != nil {
		return 0, err
	}
	switch next {
	case cancel:
		return 0, kubeclient.UnlessNotFound(m.cancelled(ctx, claim))
	case proceed, begin:
		again, err = m.changeTo(ctx, claim, pv, target, next == proceed)
		return again, kubeclient.UnlessNotFound(err)
	case nothing:
	}
	return 0, nil
}

func (m *Modifier) cancelled(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if _, err := m.Client.PatchClaim(ctx, claim, "status", cancelledPatch(claim)); err != nil {
		return fmt.Errorf("cannot record that claim %s names no VolumeAttributesClass any more: %w", kubeclient.KeyOf(claim), err)
	}
	return m.event(ctx, claim, corev1.EventTypeNormal, api.ReasonVolumeModifyCancelled, "the change of the volume's attributes was cancelled: the claim names no VolumeAttributesClass any more")
}

// changeTo gives the volume the attributes of a class. begun: the claim's status already says so.
func (m *Modifier) changeTo(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, target string, begun bool) (again time.Duration, err error) {
	class, err := m.class(ctx, target)
	switch {
	case err != nil:
		return 0, err
	case class == nil && begun:
		err := fmt.Errorf("the VolumeAttributesClass %s does not exist, and a change of the volume to it may be under way: create it again", kubeclient.Quoted(target))
		return 0, errors.Join(err, m.event(ctx, claim, corev1.EventTypeWarning, api.ReasonVolumeModifyFailed, err.Error()))
	case class == nil:
		return m.pending(ctx, claim, target)
	}
	if !begun && !isIn(claim, corev1.PersistentVolumeClaimModifyVolumeInProgress, target) {
		now, err := m.Client.PatchClaim(ctx, claim, "status", begunPatch(claim, target))
		if err != nil {
			return 0, fmt.Errorf("cannot record the change of claim %s: %w", kubeclient.KeyOf(claim), err)
		}
		claim = now
		if err := m.event(ctx, claim, corev1.EventTypeNormal, api.ReasonVolumeModify, fmt.Sprintf("node %s changes the volume to the VolumeAttributesClass %s", m.Node, target)); err != nil {
			m.Log.WarnContext(ctx, "cannot write an event", "error", err)
		}
	}
	volume, err := m.apply(ctx, pv, class)
	if err != nil {
		return m.failed(ctx, claim, target, err)
	}
	return 0, m.done(ctx, claim, pv, target, volume)
}

// class reads a VolumeAttributesClass; nil: it does not exist, or the cluster does not serve any.
func (m *Modifier) class(ctx context.Context, name string) (*storagev1.VolumeAttributesClass, error) {
	return kubeclient.Read[storagev1.VolumeAttributesClass](ctx, m.Client.Storage, "VolumeAttributesClass", "volumeattributesclasses", "", name)
}

func (m *Modifier) pending(ctx context.Context, claim *corev1.PersistentVolumeClaim, target string) (again time.Duration, err error) {
	again = m.pause(claim.UID, target, missingFirst, missingMost)
	if status := claim.Status.ModifyVolumeStatus; status == nil || status.Status != corev1.PersistentVolumeClaimModifyVolumePending {
		if _, err := m.Client.PatchClaim(ctx, claim, "status", pendingPatch()); err != nil {
			return 0, fmt.Errorf("cannot record that the VolumeAttributesClass of claim %s is missing: %w", kubeclient.KeyOf(claim), err)
		}
	}
	return again, m.event(ctx, claim, corev1.EventTypeWarning, api.ReasonVolumeModifyFailed,
		fmt.Sprintf("the VolumeAttributesClass %s does not exist; create it, or name another one in the claim", kubeclient.Quoted(target)))
}

// apply gives the volume of a PersistentVolume the limits of a class.
func (m *Modifier) apply(ctx context.Context, pv *corev1.PersistentVolume, class *storagev1.VolumeAttributesClass) (lvm.Volume, error) {
	if class.DriverName != api.DriverName {
		return lvm.Volume{}, lvm.Errorf(lvm.KindInvalid, "the VolumeAttributesClass %s is for volumes of the driver %s, and this one's is %s", class.Name, kubeclient.Quoted(class.DriverName), api.DriverName)
	}
	limits, err := lvm.ParseLimits(class.Parameters)
	if err != nil {
		return lvm.Volume{}, err
	}
	id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return lvm.Volume{}, err
	}
	return m.Limits.SetLimits(ctx, id, pv.Spec.CSI.VolumeAttributes[api.AttributeUUID], limits)
}

// done records the class on the PersistentVolume, and then on the claim: a class that a PersistentVolume names cannot be deleted.
func (m *Modifier) done(ctx context.Context, claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, target string, volume lvm.Volume) error {
	m.forget(claim.UID)
	if ptr.Deref(pv.Spec.VolumeAttributesClassName, "") != target {
		body := map[string]any{"spec": map[string]any{"volumeAttributesClassName": target}}
		if err := m.Client.Patch(ctx, "persistentvolumes", "", pv.Name, "", body, &corev1.PersistentVolume{}); err != nil {
			return fmt.Errorf("cannot set the VolumeAttributesClass of PersistentVolume %s: %w", pv.Name, err)
		}
	}
	if _, err := m.Client.PatchClaim(ctx, claim, "status", donePatch(claim, target)); err != nil {
		return fmt.Errorf("cannot record the VolumeAttributesClass of claim %s: %w", kubeclient.KeyOf(claim), err)
	}
	m.Log.InfoContext(ctx, "volume modified", "claim", kubeclient.KeyOf(claim), "volume", volume.ID.String(), "class", target, "limits", volume.Limits.String())
	return m.event(ctx, claim, corev1.EventTypeNormal, api.ReasonVolumeModifySuccessful,
		fmt.Sprintf("the volume on node %s has the VolumeAttributesClass %s; its I/O limits: %s", m.Node, target, volume.Limits))
}

// failed records in the claim's status and in an event why the change failed. It does not report the first failure of a busy volume: an expansion
// may have been in flight.
func (m *Modifier) failed(ctx context.Context, claim *corev1.PersistentVolumeClaim, target string, why error) (again time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, why
	}
	before, now := m.failureOf(claim.UID), isBusy
	if isFinal(why) {
		now = isCertain
	}
	m.noteFailure(claim.UID, now)
	if now == isBusy && before != isBusy {
		return 0, why
	}
	if !saysFailed(claim, target, why) {
		if _, err := m.Client.PatchClaim(ctx, claim, "status", failedPatch(claim, target, why)); err != nil {
			return 0, errors.Join(why, fmt.Errorf("cannot record why the change of claim %s failed: %w", kubeclient.KeyOf(claim), err))
		}
	}
	noted := m.event(ctx, claim, corev1.EventTypeWarning, api.ReasonVolumeModifyFailed, why.Error())
	if isInfeasible(why) {
		return m.pause(claim.UID, target, infeasibleFor, infeasibleFor), noted
	}
	return 0, errors.Join(why, noted)
}

func (m *Modifier) event(ctx context.Context, claim *corev1.PersistentVolumeClaim, kind, reason, message string) error {
	return m.Events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: kind, Reason: reason, Message: message})
}

func (m *Modifier) failureOf(uid types.UID) failure {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failures[uid]
}

func (m *Modifier) noteFailure(uid types.UID, f failure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) >= remembered {
		clear(m.failures)
	}
	m.failures[uid] = f
}

// pauseLeft returns how long no attempt follows for a claim; 0 if the claim names another class now.
func (m *Modifier) pauseLeft(uid types.UID, target string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.paused[uid]; p.target == target {
		return max(0, time.Until(p.until))
	}
	return 0
}

// pause begins a pause, twice as long as the last one for this class.
func (m *Modifier) pause(uid types.UID, target string, first, most time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.paused[uid]
	if last.target != target {
		last.last = 0
	}
	if len(m.paused) >= remembered {
		clear(m.paused)
	}
	length := min(max(first, 2*last.last), most)
	m.paused[uid] = pause{target, length, time.Now().Add(length)}
	return length
}

// forget drops what is remembered of a claim whose change has succeeded.
func (m *Modifier) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.failures, uid)
	delete(m.paused, uid)
}
