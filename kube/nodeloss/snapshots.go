package nodeloss

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// contentKind is a kind of contents.
type contentKind struct {
	resource  string
	finalizer string // which the node that has removed the snapshot removes
}

var (
	ofSnapshot = contentKind{"volumesnapshotcontents", "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"}
	ofGroup    = contentKind{"volumegroupsnapshotcontents", api.FinalizerGroupContent}
)

// contentObservation has all that decides the next step for a content.
type contentObservation struct {
	Now     time.Time
	Watched time.Duration // How long this controller has observed the loss.
	Grace   time.Duration
	Loss    loss
	C       *kubeclient.Content // Of a group snapshot: the metadata alone.
	kind    contentKind
	lost    time.Time            // When the controllers first observed the loss.
	Bound   *kubeclient.Snapshot // The snapshot that the content is bound to; nil if it no longer exists.
	broken  error                // Broken link of the chain from the content to its snapshot and its node: no step.
	OptIn   bool                 // Its VolumeSnapshotClass says release.
	Marked  time.Time
}

func (s contentObservation) releaseAt() time.Time {
	return releaseAt(s.Marked, s.Now, s.Watched, s.Grace)
}

// decideContent decides the next step: a content has some of the steps of a volume. stepDeleteClaim means the
// VolumeSnapshot, which is deleted with its content.
func decideContent(s contentObservation) step {
	switch {
	case s.broken != nil:
		return stepReportBroken
	case s.Loss.kind == lossNone && s.Marked.IsZero():
		return stepNothing
	case s.Loss.kind == lossNone:
		return stepClearLoss
	case s.Marked.IsZero():
		return stepMark
	case s.Now.Before(s.Marked.Add(s.Grace)):
		return stepReport
	case s.C.DeletionTimestamp != nil && (s.Loss.kind == lossGone || s.OptIn) && slices.Contains(s.C.Finalizers, s.kind.finalizer):
		return stepRemoveFinalizer
	case s.C.DeletionTimestamp == nil && s.Bound != nil && s.OptIn && !s.Now.Before(s.releaseAt()):
		return stepDeleteClaim
	case s.C.DeletionTimestamp == nil:
		return stepReport
	}
	return stepNothing
}

// checkContent does the next step for the content of a snapshot.
func (r *round) checkContent(ctx context.Context, name, nodeName string) (time.Duration, error) {
	s := r.observationOf(ofSnapshot)
	there, err := kubeclient.Get(ctx, r.Client.Snapshots, s.kind.resource, "", name, s.C)
	if err != nil || !there || !isOnNode(s.C, s.C.Spec.Driver, nodeName) {
		return 0, err
	}
	if err := r.observeContentLoss(ctx, &s, nodeName); err != nil {
		return 0, err
	}
	if s.Loss.kind != lossNone {
		if err := r.observeSnapshot(ctx, &s); err != nil {
			return 0, err
		}
	}
	return r.doContent(ctx, s, decideContent(s))
}

// checkGroup does the next step for the content of a group snapshot: if the cluster deletes it, only its node would let it go. No class releases group
// snapshots, so the loss of one has no event; each of its snapshots has one.
func (r *round) checkGroup(ctx context.Context, name, nodeName string) (time.Duration, error) {
	s, group := r.observationOf(ofGroup), &kubeclient.GroupContent{}
	there, err := kubeclient.Get(ctx, r.Client.GroupSnapshots, s.kind.resource, "", name, group)
	if err != nil || !there || !isOnNode(group, group.Spec.Driver, nodeName) {
		return 0, err
	}
	s.C.ObjectMeta = group.ObjectMeta
	if err := r.observeContentLoss(ctx, &s, nodeName); err != nil {
		return 0, err
	}
	return r.doContent(ctx, s, decideContent(s))
}

func (r *round) observationOf(kind contentKind) contentObservation {
	return contentObservation{Now: time.Now(), Grace: r.Grace, C: &kubeclient.Content{}, kind: kind}
}

func isOnNode(content metav1.Object, driver, node string) bool {
	return driver == api.DriverName && content.GetLabels()[api.LabelManagedBy] == node
}

// observeContentLoss determines whether a content's node is lost, and since when.
func (r *round) observeContentLoss(ctx context.Context, s *contentObservation, nodeName string) error {
	node, err := r.Client.Node(ctx, nodeName)
	if err != nil {
		return err
	}
	s.Loss = lossOf(nodeName, node, "")
	if s.Loss.kind != lossNone {
		if s.lost, err = r.lostSince(s.Loss, "", s.Now); err != nil {
			return err
		}
	}
	s.Watched = r.watched(s.Loss, "", s.Now)
	s.Marked = r.markedAt(ctx, s.Now, s.Loss, s.lost, s.C)
	return nil
}

// observeSnapshot reads the content's snapshot and its class. If it sets neither a snapshot nor a broken chain, the content was
// never bound to a snapshot, or that snapshot no longer exists.
func (r *round) observeSnapshot(ctx context.Context, s *contentObservation) error {
	if s.broken = kubeclient.PlacedContent(s.C, s.Loss.node); s.broken != nil {
		return nil //nolint:nilerr // the broken link is a part of the observation
	}
	ref := s.C.Spec.VolumeSnapshotRef
	found, err := r.Client.Snapshot(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return err
	}
	class := s.C.Spec.VolumeSnapshotClassName
	if found != nil && ref.UID != "" && found.UID == ref.UID {
		if s.broken = kubeclient.SnapshotChain(s.C, found, s.Loss.node); s.broken != nil {
			return nil //nolint:nilerr // as above
		}
		s.Bound = found
		if found.Spec.ClassName != "" && found.Spec.ClassName != class {
			return nil // the content's class does not apply to this snapshot
		}
	}
	s.OptIn, err = r.snapshotReleases(ctx, class)
	return err
}

func (r *round) doContent(ctx context.Context, s contentObservation, what step) (time.Duration, error) {
	switch what {
	case stepClearLoss:
		return 0, r.patchContent(ctx, s, map[string]any{"annotations": map[string]any{api.AnnotationLostSince: nil}})
	case stepMark:
		return 0, r.patchContent(ctx, s, map[string]any{"annotations": map[string]any{api.AnnotationLostSince: noteAt(s.Now, s.C.CreationTimestamp.Time, s.lost).Format(time.RFC3339)}})
	case stepReport:
		wait := reportAgain
		if due := s.releaseAt(); due.After(s.Now) {
			wait = max(time.Second, due.Sub(s.Now))
		}
		if s.Bound == nil {
			return wait, nil // no owner is left to inform
		}
		return wait, r.reportSnapshot(ctx, s, corev1.EventTypeWarning, api.ReasonSnapshotLost, fmt.Sprintf(
			"%s. Snapshot %s is on it and is available again when it returns. If it does not return, delete this VolumeSnapshot. "+
				"nodelvm-controller deletes those of VolumeSnapshotClasses with the annotation %s: %s, %s after the loss.", s.Loss, s.C.Status.SnapshotHandle, api.AnnotationOnNodeLoss, api.OnNodeLossRelease, s.Grace))
	case stepReportBroken:
		return reportAgain, r.reportBroken(ctx, api.ReasonSnapshotMismatch, corev1.ObjectReference{
			APIVersion: kubeclient.SnapshotVersion.String(), Kind: kubeclient.KindContent, Name: s.C.Name, UID: s.C.UID}, s.broken)
	case stepDeleteClaim:
		return reportAgain, r.deleteSnapshot(ctx, s) // the watch brings the end of the content, unless it is retained
	case stepRemoveFinalizer:
		finalizers := slices.DeleteFunc(slices.Clone(s.C.Finalizers), func(f string) bool { return f == s.kind.finalizer })
		r.Log.InfoContext(ctx, "removed the finalizer that the lost node would have removed", "content", s.C.Name, "node", s.Loss.node)
		return 0, r.patchContent(ctx, s, map[string]any{"finalizers": finalizers})
	default:
		return 0, nil
	}
}

// deleteSnapshot deletes the VolumeSnapshot; the snapshot controller then deletes the content.
func (r *round) deleteSnapshot(ctx context.Context, s contentObservation) error {
	err := remove(ctx, r.Client.Snapshots, "volumesnapshots", s.Bound, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot delete snapshot %s: %w", s.C.SnapshotKey(), err)
	}
	return r.reportSnapshot(ctx, s, corev1.EventTypeNormal, api.ReasonSnapshotDeleted, fmt.Sprintf(
		"%s for more than %s: nodelvm-controller deletes this snapshot, as its class demands; %s stays on its disks", s.Loss, s.Grace, s.C.Status.SnapshotHandle))
}

func (r *round) reportSnapshot(ctx context.Context, s contentObservation, kind, reason, message string) error {
	ref := s.C.Spec.VolumeSnapshotRef
	r.Log.InfoContext(ctx, message, "snapshot", s.C.SnapshotKey(), "node", s.Loss.node, "reason", reason)
	return r.Events.Record(ctx, kubeclient.Event{About: corev1.ObjectReference{
		APIVersion: kubeclient.SnapshotVersion.String(), Kind: kubeclient.KindSnapshot, Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}, Kind: kind, Reason: reason, Message: message})
}

// patchContent changes the metadata of a content; if the content has changed since it was read, the error is a conflict.
func (r *round) patchContent(ctx context.Context, s contentObservation, metadata map[string]any) error {
	metadata["resourceVersion"] = s.C.ResourceVersion
	body, err := map[string]any{"metadata": metadata}, error(nil)
	if s.kind == ofGroup {
		err = kubeclient.PatchBy(ctx, r.Client.GroupSnapshots, s.kind.resource, "", s.C.Name, "", body, &kubeclient.GroupContent{})
	} else {
		err = kubeclient.PatchBy(ctx, r.Client.Snapshots, s.kind.resource, "", s.C.Name, "", body, &kubeclient.Content{})
	}
	if kubeclient.UnlessNotFound(err) != nil {
		return fmt.Errorf("change %s %s: %w", s.kind.resource, s.C.Name, err)
	}
	return nil
}

// snapshotReleases reports whether a VolumeSnapshotClass says release.
func (r *round) snapshotReleases(ctx context.Context, name string) (bool, error) {
	var class kubeclient.SnapshotClass
	if _, err := kubeclient.Get(ctx, r.Client.Snapshots, "volumesnapshotclasses", "", name, &class); err != nil {
		return false, fmt.Errorf("cannot read VolumeSnapshotClass %s: %w", name, err)
	}
	return api.ReleasesOnNodeLoss(class.Driver, class.Annotations), nil
}
