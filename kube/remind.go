package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A claim that was given to this node, and that nobody asks a volume for, would wait until the scheduler gives up on it, ten
// minutes later: csi-provisioner has overlooked it. When it gives a claim back, its library writes its own copy of the claim
// into its memory (sig-storage-lib-external-provisioner, rescheduleProvisioning); if the scheduler has chosen this node again
// in between, that is what it forgets. Any change of the claim brings it back, so one is made. Claims that csi-provisioner makes
// no volume for are left alone: those of a volume populator, and those with a selector, which ask for a volume that is there
// (Velero gives one to a claim while it restores the data).

// annReminded is when made csi-provisioner retry a claim last (RFC 3339). Nothing reads it.
const annReminded = "nodelvm.io/provisioning-retried-at"

// How long a claim of this node may lie without a call before csi-provisioner is reminded: a burst of claims reaches the
// driver within a few seconds. A reminder that did not help was no cure, so the next ones come less and less often.
const (
	reminderFirst = 10 * time.Second
	reminderMost  = 5 * time.Minute
)

// remind changes a claim that nobody has asked a volume for since it last changed, when its time has come.
func (a *Agent) remind(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	key, id := keyOf(claim), string(claim.UID)
	since, silent := a.claims.silentSince(key)
	if !silent {
		return nil
	}
	if left := time.Until(since.Add(max(a.patience, a.reminders.Get(id)))); left > 0 {
		a.queue.AddAfter(key, left)
		return nil
	}
	now := time.Now()
	_, err := a.client.patchClaim(ctx, claim, "", patch{annotations: map[string]any{annReminded: now.UTC().Format(time.RFC3339)}})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the watch tells what has become of it
	case err != nil:
		return fmt.Errorf("cannot make csi-provisioner retry claim %s: %w", key, err)
	}
	a.reminders.Next(id, now)
	a.log.InfoContext(ctx, "made csi-provisioner retry a claim", "claim", key, "waitedFor", now.Sub(since).Round(time.Second))
	return nil
}
