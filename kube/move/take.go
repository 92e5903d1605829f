package move

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// take does one step.
func (a *Agent) take(ctx context.Context, v *view, s step) error {
	if done, err := a.takeLocal(ctx, v, s.do); done {
		return err
	}
	switch s.do {
	case annotate:
		return a.objects.PatchVolume(ctx, v.pv, map[string]any{api.AnnotationMoveRecord: v.rec.text(), api.AnnotationMovingTo: v.rec.To}, corev1.PersistentVolumeReclaimRetain, false)
	case deleteVolume:
		return kubeclient.UnlessNotFound(a.objects.DeleteVolume(ctx, v.pv))
	case dropFinalizers:
		return kubeclient.UnlessNotFound(a.objects.PatchVolume(ctx, v.pv, nil, "", true))
	case createParked:
		return a.objects.CreateVolume(ctx, v.rec.onSource(true), false)
	case createSource:
		return a.objects.CreateVolume(ctx, v.rec.onSource(false), false)
	case createTarget:
		return a.objects.CreateVolume(ctx, v.rec.onTarget(v.local.Volume), false)
	case publishOffer:
		text, err := json.Marshal(v.offer)
		if err != nil {
			return err
		}
		return a.objects.PatchVolume(ctx, v.pv, map[string]any{api.AnnotationMoveOffer: string(text)}, "", false)
	case announce:
		return a.objects.PatchVolume(ctx, v.pv, map[string]any{api.AnnotationHandedOver: v.local.Move}, "", false)
	case answer:
		return a.objects.PatchVolume(ctx, v.pv, map[string]any{api.AnnotationMoveAnswer: v.answer().text()}, "", false)
	case restore:
		gone := map[string]any{}
		for _, k := range ourAnnotations {
			gone[k] = nil
		}
		return a.objects.PatchVolume(ctx, v.pv, gone, v.rec.Policy, false)
	case poke:
		return a.patchClaim(ctx, v, s, nil)
	case selectNode:
		return a.patchClaim(ctx, v, s, map[string]any{api.AnnotationSelectedNode: v.rec.To, api.AnnotationMoveFinish: nil})
	case restoreClass:
		return a.objects.PatchClaim(ctx, v.claim, "status", kubeclient.Patch{Status: map[string]any{"currentVolumeAttributesClassName": v.rec.AttributesClass}})
	default: // wait
		return nil
	}
}

// takeLocal does a step that is a call of the engine; done is false if it is not one.
func (a *Agent) takeLocal(ctx context.Context, v *view, do action) (done bool, err error) {
	id, uuid := lvm.ID{}, ""
	if v.local != nil {
		id, uuid = v.local.ID, v.local.UUID
	}
	switch do {
	case note:
		return true, a.engine.Note(ctx, id, uuid, v.toNote().text())
	case confirm:
		r := *v.rec
		r.Confirmed = v.local.Move
		return true, a.engine.Note(ctx, id, uuid, r.text())
	case forget:
		a.mu.Lock()
		delete(a.progress, v.local.Name)
		a.mu.Unlock()
		err := a.engine.Note(ctx, id, uuid, "")
		if err == nil && len(v.local.Rounds) > 0 {
			err = a.engine.DropUnneeded(ctx)
		}
		return true, err
	case takeRound:
		number, before := v.nextRound()
		return true, a.engine.TakeRound(ctx, id, uuid, number, before)
	case dropFormer:
		return true, a.engine.DropRounds(ctx, *v.local, v.newest().Move)
	case dropRounds:
		a.copiesAlone(v.local.Name, v.useless)
		return true, a.engine.DropRounds(ctx, *v.local, "")
	case hold:
		_, err := a.engine.Hold(ctx, id, uuid)
		return true, err
	case cancel:
		return true, a.engine.Cancel(ctx, id, uuid)
	case handOver:
		return true, a.engine.HandOver(ctx, id, uuid, v.local.Move)
	case remove:
		return true, a.engine.Remove(ctx, id, uuid)
	case finish:
		return true, a.engine.Finish(ctx, id, uuid)
	case discard:
		return true, a.engine.Discard(ctx, id, uuid)
	case receive:
		a.receive(ctx, v)
		return true, nil
	default:
		return false, nil
	}
}

// toNote is the record that the step note writes.
func (v *view) toNote() *Record {
	if v.fresh != nil {
		return v.fresh
	}
	return v.incoming()
}

// receive begins or continues a copy. What prevents it is not this step's error: the source shows it to the claim's user.
func (a *Agent) receive(ctx context.Context, v *view) {
	p, err := a.tryReceive(ctx, v)
	if err != nil {
		p.Problem = err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.progress) > maxReported {
		clear(a.progress)
	}
	a.progress[v.pv.Name] = p
}

func (a *Agent) tryReceive(ctx context.Context, v *view) (Progress, error) {
	r := v.incoming()
	o, ok := offered(v.pv)
	if r == nil || !ok {
		return Progress{}, nil // changed between the decision and now: decide again
	}
	if refused, err := a.mayPlace(ctx, r.Class, a.node); refused != nil || err != nil {
		return Progress{}, cmp.Or(err, refused)
	}
	class, err := a.objects.Class(ctx, r.Class)
	if class == nil || err != nil {
		return Progress{}, err
	}
	if v.local == nil {
		if err := a.objects.CreateVolume(ctx, r.onTarget(lvm.Volume{ID: lvm.ID{VG: someGroup, LV: r.name()}, Name: r.name()}), true); err != nil {
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				return Progress{}, fmt.Errorf("the API server would not let node %s create PersistentVolume %s: %w", a.node, r.name(), err)
			}
			return Progress{}, err
		}
	}
	size := resource.MustParse(r.Capacity)
	return a.engine.Receive(ctx, o, Offered{Name: r.name(), Handle: r.Handle, UUID: r.UUID, Claim: r.key(), Block: r.Block, Size: lvm.Bytes(size.Value())}, class.Parameters)
}

// someGroup stands for the volume group that is not known yet.
const someGroup = lvm.VGUUID("000000-0000-0000-0000-0000-0000-000000")

// patchClaim writes the claim's status, and other annotations.
func (a *Agent) patchClaim(ctx context.Context, v *view, s step, annotations map[string]any) error {
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[api.AnnotationMoveStatus] = a.status(v, s)
	return kubeclient.UnlessNotFound(a.objects.PatchClaim(ctx, v.claim, "", kubeclient.Patch{Annotations: annotations}))
}

// status is the text of the status annotation. The time makes each one another: any change of a claim makes Kubernetes bind it at once.
func (a *Agent) status(v *view, s step) string {
	st := api.MoveStatus{Phase: s.phase, Message: cut(s.why), Time: a.now().UTC().Format(time.RFC3339Nano)}
	if r := v.either(); r != nil {
		st.From, st.To = r.From, r.To
	} else {
		st.From, st.To = a.node, wants(v.claim)
	}
	if (s.phase == api.MoveCopying || s.phase == api.MoveStopping) && v.pv != nil {
		p := answered(v.pv)
		st.Done, st.Total = int64(p.Done), int64(p.Total)
	}
	text, err := json.Marshal(st)
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}

func (v *view) either() *Record {
	if v.rec != nil {
		return v.rec
	}
	return v.fresh
}
