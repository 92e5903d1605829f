package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// finalizerContent is csi-snapshotter's on a content; the node that has removed the snapshot removes it.
const finalizerContent = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

// contentSight is everything that decides the next step for a content.
type contentSight struct {
	now    time.Time
	began  time.Time // Start of this janitor.
	grace  time.Duration
	loss   loss
	c      *content
	lost   time.Time // When the janitors first observed the loss.
	bound  *snapshot // The snapshot that the content is bound to; nil if it no longer exists.
	broken error     // Broken link of the chain from the content to its snapshot and its node: no step.
	optIn  bool      // Its VolumeSnapshotClass says release.
	marked time.Time
}

// decideContent decides the next step: a content has some of the steps of a volume. stepDeleteClaim means the
// VolumeSnapshot, which is deleted with its content.
func decideContent(s contentSight) step {
	switch {
	case s.broken != nil:
		return stepTellBroken
	case s.loss.kind == lossNone && s.marked.IsZero():
		return stepNothing
	case s.loss.kind == lossNone:
		return stepForgive
	case s.marked.IsZero():
		return stepMark
	case s.now.Before(s.marked.Add(s.grace)):
		return stepTell
	case s.c.DeletionTimestamp != nil && (s.loss.kind == lossGone || s.optIn) && slices.Contains(s.c.Finalizers, finalizerContent):
		return stepUnholdPV
	case s.c.DeletionTimestamp == nil && s.bound != nil && s.optIn && !s.now.Before(releaseAt(s.marked, s.began, s.grace)):
		return stepDeleteClaim
	case s.c.DeletionTimestamp == nil:
		return stepTell
	}
	return stepNothing
}

// lookAtContent does the next step for the content of a snapshot.
func (r *janitorRound) lookAtContent(ctx context.Context, name, nodeName string) (time.Duration, error) {
	s := contentSight{now: time.Now(), began: r.began, grace: r.cfg.Grace, c: &content{}}
	there, err := get(ctx, r.client.snapshots, "volumesnapshotcontents", "", name, s.c)
	if err != nil || !there || s.c.Spec.Driver != DriverName || s.c.Labels[labelManagedBy] != nodeName {
		return 0, err
	}
	node, err := r.client.node(ctx, nodeName)
	if err != nil {
		return 0, err
	}
	s.loss = lossOf(nodeName, node, "")
	s.lost, s.marked = r.noted(ctx, s.now, s.loss, "", s.c)
	if s.loss.kind != lossNone {
		if err := r.seeSnapshot(ctx, &s); err != nil {
			return 0, err
		}
	}
	return r.doContent(ctx, s, decideContent(s))
}

// seeSnapshot reads the content's snapshot and its class. If it sets neither a snapshot nor a broken chain, the content was
// never bound to a snapshot, or that snapshot no longer exists.
func (r *janitorRound) seeSnapshot(ctx context.Context, s *contentSight) error {
	if s.broken = placedContent(s.c, s.loss.node); s.broken != nil {
		return nil //nolint:nilerr // a broken link is what was seen
	}
	ref := s.c.Spec.VolumeSnapshotRef
	found, err := r.client.snapshot(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	class := s.c.Spec.VolumeSnapshotClassName
	if found != nil && ref.UID != "" && found.UID == ref.UID {
		if s.broken = snapshotChain(s.c, found, s.loss.node); s.broken != nil {
			return nil //nolint:nilerr // as above
		}
		s.bound = found
		if found.Spec.ClassName != "" && found.Spec.ClassName != class {
			return nil // the content's class does not apply to this snapshot
		}
	}
	s.optIn, err = r.snapshotReleases(ctx, class)
	return err
}

func (r *janitorRound) doContent(ctx context.Context, s contentSight, what step) (time.Duration, error) {
	switch what {
	case stepForgive:
		return 0, r.patchContent(ctx, s.c, map[string]any{"annotations": map[string]any{annLostSince: nil}})
	case stepMark:
		return 0, r.patchContent(ctx, s.c, map[string]any{"annotations": map[string]any{annLostSince: noteAt(s.now, s.c.CreationTimestamp.Time, s.lost).Format(time.RFC3339)}})
	case stepTell:
		wait := tellAgain
		if due := releaseAt(s.marked, s.began, s.grace); due.After(s.now) {
			wait = max(time.Second, due.Sub(s.now))
		}
		if s.bound == nil {
			return wait, nil // no owner is left to inform
		}
		return wait, r.tellSnapshot(ctx, s, corev1.EventTypeWarning, reasonSnapshotLost, fmt.Sprintf(
			"%s. Snapshot %s is on it and is available again when it returns. If it does not return, delete this VolumeSnapshot. "+
				"The janitor deletes those of VolumeSnapshotClasses with the annotation %s: %s, %s after the loss.", s.loss, s.c.Status.SnapshotHandle, OnNodeLoss, onNodeLossRelease, s.grace))
	case stepTellBroken:
		return tellAgain, r.tellBroken(ctx, reasonSnapshotMismatch, corev1.ObjectReference{
			APIVersion: snapshotVersion.String(), Kind: kindContent, Name: s.c.Name, UID: s.c.UID}, s.broken)
	case stepDeleteClaim:
		return tellAgain, r.deleteSnapshot(ctx, s) // the watch brings the end of the content, unless it is retained
	case stepUnholdPV:
		finalizers := slices.DeleteFunc(slices.Clone(s.c.Finalizers), func(f string) bool { return f == finalizerContent })
		r.log.InfoContext(ctx, "removed the finalizer that only the lost node removes", "content", s.c.Name, "node", s.loss.node)
		return 0, r.patchContent(ctx, s.c, map[string]any{"finalizers": finalizers})
	default:
		return 0, nil
	}
}

// deleteSnapshot deletes the VolumeSnapshot; the snapshot controller then deletes the content.
func (r *janitorRound) deleteSnapshot(ctx context.Context, s contentSight) error {
	err := remove(ctx, r.client.snapshots, "volumesnapshots", s.bound, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete snapshot %s: %w", s.c.snapshotKey(), err)
	}
	return r.tellSnapshot(ctx, s, corev1.EventTypeNormal, reasonReleasedSnapshot, fmt.Sprintf(
		"%s for more than %s: the janitor deletes this snapshot, as its class demands; %s stays on its disks", s.loss, s.grace, s.c.Status.SnapshotHandle))
}

func (r *janitorRound) tellSnapshot(ctx context.Context, s contentSight, kind, reason, message string) error {
	ref := s.c.Spec.VolumeSnapshotRef
	r.log.InfoContext(ctx, message, "snapshot", s.c.snapshotKey(), "node", s.loss.node, "reason", reason)
	return r.events.tell(ctx, news{corev1.ObjectReference{
		APIVersion: snapshotVersion.String(), Kind: kindSnapshot, Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}, kind, reason, message})
}

// patchContent changes the metadata of a content; if the content has changed since it was read, the error is a conflict.
func (r *janitorRound) patchContent(ctx context.Context, c *content, metadata map[string]any) error {
	metadata["resourceVersion"] = c.ResourceVersion
	err := patchBy(ctx, r.client.snapshots, "volumesnapshotcontents", "", c.Name, "", map[string]any{"metadata": metadata}, &content{})
	if unlessNotFound(err) != nil {
		return fmt.Errorf("change VolumeSnapshotContent %s: %w", c.Name, err)
	}
	return nil
}

// snapshotReleases reports whether a VolumeSnapshotClass says release.
func (r *janitorRound) snapshotReleases(ctx context.Context, name string) (bool, error) {
	var class snapshotClass
	if _, err := get(ctx, r.client.snapshots, "volumesnapshotclasses", "", name, &class); err != nil {
		return false, fmt.Errorf("read VolumeSnapshotClass %s: %w", name, err)
	}
	return class.Driver == DriverName && class.Annotations[OnNodeLoss] == onNodeLossRelease, nil
}
