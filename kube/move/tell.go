package move

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// statusEvery is the shortest interval between two statuses that differ in their text alone.
const statusEvery = 5 * time.Second

// tell shows the claim's user what the move does or waits for: as a status, which only the claim's selected node writes, and as an event when the
// phase or a problem changes.
func (a *Agent) tell(ctx context.Context, v *view, s step, failed error) {
	if apierrors.IsConflict(failed) {
		return // the agent reads again at once
	}
	if failed != nil && s.phase != "" {
		s.why, s.warn = failed.Error(), true
	}
	ends := s.do == wait || s.do == forget // other steps are followed by one, which says more
	if v.claim == nil || s.phase == "" || !ends && failed == nil || v.local == nil {
		return
	}
	key := kubeclient.KeyOf(v.claim)
	a.mu.Lock()
	before := a.reported[key]
	news := before.phase != s.phase || s.do == forget || s.warn && before.text != s.why // forget: the end of a move
	due := news || before.text != s.why && a.now().Sub(before.when) >= statusEvery
	if due {
		if len(a.reported) > maxReported {
			clear(a.reported)
		}
		a.reported[key] = reported{s.phase, s.why, a.now()}
	}
	a.mu.Unlock()
	if news {
		a.event(ctx, v, s)
	}
	if !due || !ends || v.claim.Annotations[api.AnnotationSelectedNode] != a.node {
		return
	}
	err := a.patchClaim(ctx, v, s, nil)
	if err == nil {
		return
	}
	a.mu.Lock()
	a.reported[key] = reported{phase: s.phase} // the next step says it
	a.mu.Unlock()
	if kubeclient.UnlessConflict(err) != nil {
		a.log.WarnContext(ctx, "cannot write the status of a move", "claim", key, "error", err)
	}
}

// maxReported bounds the memory for claims whose move ended; what is dropped is reported, or found out, again.
const maxReported = 1000

// event writes an event on the claim.
func (a *Agent) event(ctx context.Context, v *view, s step) {
	n := kubeclient.Event{About: kubeclient.AboutClaim(v.claim.Namespace, v.claim.Name, v.claim.UID), Kind: corev1.EventTypeNormal, Reason: api.ReasonVolumeMoving, Message: s.why}
	switch {
	case s.warn:
		n.Kind, n.Reason = corev1.EventTypeWarning, api.ReasonVolumeMoveWaiting
	case s.phase == api.MoveMoved && s.do == forget:
		n.Reason = api.ReasonVolumeMoved
	case s.phase == api.MoveCancelled && s.do == forget:
		n.Reason = api.ReasonVolumeMoveCancelled
	case s.why == "":
		return
	}
	if a.events == nil {
		return
	}
	if err := a.events.Record(ctx, n); err != nil {
		a.log.WarnContext(ctx, "cannot write an event", "reason", n.Reason, "about", kubeclient.KeyOf(v.claim), "error", err)
	}
}
