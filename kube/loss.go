package kube

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file decides what is done about a volume whose node or group is lost; janitorsteps.go does it.

// OnNodeLoss is the annotation of a StorageClass, or of a VolumeSnapshotClass, that says what the janitor does when the
// node or the volume group of a volume is lost: "release", or, without it, nothing but an event. It is no parameter of
// the class: those are for the driver, are fixed for life, and are copied nowhere.
const (
	OnNodeLoss        = "nodelvm.io/on-node-loss"
	onNodeLossRelease = "release"
)

// Annotations on a PersistentVolume and a VolumeSnapshotContent; but for the last each holds a time (RFC 3339, UTC).
const (
	annLostSince = "nodelvm.io/lost-since"              // the janitor's: since when it has seen its node or group lost
	annGroupLost = "nodelvm.io/volume-group-lost-since" // the node's own: since when its volume group is not on the node any more
	annAbandoned = "nodelvm.io/abandoned-since"         // the janitor's: when it released the claim of a volume that is retained
	annPolicy    = "nodelvm.io/original-reclaim-policy" // the janitor's: the policy of a volume whose claim it releases, Retain meanwhile
)

// finalizerProvisioner is csi-provisioner's: it is removed by the node that has removed the volume, which a lost node
// never does.
const finalizerProvisioner = "external-provisioner.volume.kubernetes.io/finalizer"

// loss is why a volume cannot be reached, and perhaps never will be.
type loss struct {
	kind lossKind
	node string
}

type lossKind string

const (
	lossNone  lossKind = ""
	lossGone  lossKind = "gone"           // there is no Node object of that name
	lossTaint lossKind = "out-of-service" // an admin has tainted the node so, and it does not answer: it is shut down
	lossGroup lossKind = "group"          // the node is there and says that the volume group is not
)

// lossOf finds out whether a volume on that node is lost. node is nil if there is no Node object; a node that is merely
// NotReady, unreachable or cordoned is not lost. Nor is one that is Ready again, whatever taint it still bears: its driver
// would really remove what is released.
func lossOf(name string, node *corev1.Node, groupLost string) loss {
	if node == nil {
		return loss{kind: lossGone, node: name}
	}
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	answers := slices.ContainsFunc(node.Status.Conditions, ready)
	out := func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeOutOfService }
	if !answers && slices.ContainsFunc(node.Spec.Taints, out) {
		return loss{kind: lossTaint, node: name}
	}
	silent := !answers && len(node.Status.Conditions) > 0 // then what it said may not be so any more
	if _, err := time.Parse(time.RFC3339, groupLost); err == nil && !silent {
		return loss{kind: lossGroup, node: name}
	}
	return loss{}
}

func (l loss) String() string {
	switch l.kind {
	case lossGone:
		return "node " + l.node + " is no longer in the cluster"
	case lossTaint:
		return "node " + l.node + " is out of service (taint " + corev1.TaintNodeOutOfService + ")"
	case lossGroup:
		return "the volume group is no longer on node " + l.node
	case lossNone:
	}
	return ""
}

// step is the one next thing to do about a volume.
type step int

const (
	stepNothing     step = iota
	stepForgive          // it is back: remove the mark, and say so
	stepMark             // note when it was first seen lost: the grace period begins then, whatever a taint says
	stepTell             // tell what can be done; and look again after the grace period, or once the event fades
	stepInUse            // tell that a running pod has the claim
	stepDeleteClaim      // the claim, so that another one can be made
	stepDeletePods       // those that wait for it
	stepAwait            // Kubernetes' own controllers are at it
	stepDeletePV
	stepUnholdPV   // remove csi-provisioner's finalizer: nobody else will
	stepAbandon    // the PersistentVolume is retained: note that its claim was released
	stepTellBroken // tell, on the object that refers to another one without being bound to it, that nothing is done
)

// watchFirst is how much of the grace period one janitor must have seen itself: while none ran, the node may have been
// back; and the one that noted the loss may have had another time.
const watchFirst = 10 * time.Minute

// releaseAt is when a loss that was noted then is due for a janitor that is at work since began.
func releaseAt(marked, began time.Time, grace time.Duration) time.Time {
	at := marked.Add(grace)
	if seen := began.Add(min(grace, watchFirst)); seen.After(at) {
		return seen
	}
	return at
}

// sight is everything that one volume is decided by, as it was read just now.
type sight struct {
	now    time.Time
	began  time.Time // since when this janitor is at work
	grace  time.Duration
	loss   loss
	pv     *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim // the one that the volume is bound to; nil if it is gone
	broken error                         // a link of the chain from the volume to its claim and its node: nothing is done
	optIn  bool                          // the class says release
	users  []corev1.Pod                  // pods that use the claim and have not ended
	lost   time.Time                     // since when the janitors have seen the loss
	marked time.Time                     // annLostSince; zero if it is not there, or no janitor can have written it of this loss
}

func (s sight) due() bool { return !s.marked.IsZero() && !s.now.Before(s.marked.Add(s.grace)) }

// decide says what is next. Whatever was done before stands in the objects, so a restart goes on where the last one ended.
func decide(s sight) step {
	switch {
	case s.broken != nil:
		return stepTellBroken
	case s.loss.kind == lossNone && s.marked.IsZero() && s.pv.Annotations[annPolicy] == "":
		return stepNothing
	case s.loss.kind == lossNone:
		return stepForgive
	case s.marked.IsZero():
		return stepMark
	case !s.due():
		return stepTell
	case s.claim != nil:
		return decideBound(s)
	default:
		return decideReleased(s)
	}
}

func decideBound(s sight) step {
	switch {
	case !s.optIn, s.claim.DeletionTimestamp == nil && s.now.Before(releaseAt(s.marked, s.began, s.grace)):
		return stepTell
	case slices.ContainsFunc(s.users, s.alive):
		return stepInUse
	case s.claim.DeletionTimestamp == nil:
		return stepDeleteClaim
	case slices.ContainsFunc(s.users, s.removable):
		return stepDeletePods
	default:
		return stepAwait
	}
}

// alive tells whether a pod may be at work: it runs on another node, or on this one where only a group is lost.
func (s sight) alive(pod corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil && pod.Spec.NodeName == s.loss.node {
		return false
	}
	return pod.Spec.NodeName != s.loss.node || s.loss.kind == lossGroup && pod.Status.Phase != corev1.PodPending
}

// removable tells whether a pod is to be deleted: it waits for the claim, or stood on the lost node, whose kubelet no
// longer takes it away. Where only the group is lost the kubelet does.
func (s sight) removable(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil || s.ownerless(pod)
}

func (s sight) ownerless(pod corev1.Pod) bool {
	return pod.Spec.NodeName == s.loss.node && s.loss.kind != lossGroup
}

// decideReleased is for a volume whose claim is gone. Its data was given up with the claim if that is its policy: what is
// left is an object that only the lost node would remove.
func decideReleased(s sight) step {
	if s.pv.Spec.ClaimRef == nil || s.pv.Spec.ClaimRef.UID == "" || !isReleased(s.pv) {
		return stepNothing // made by hand and never bound, or the volume controller has yet to see that the claim is gone
	}
	policy := cmp.Or(policyBefore(s.pv), s.pv.Spec.PersistentVolumeReclaimPolicy)
	switch {
	case policy == corev1.PersistentVolumeReclaimDelete && (s.loss.kind == lossGone || s.optIn):
		if s.pv.DeletionTimestamp == nil {
			return stepDeletePV
		}
		if slices.Contains(s.pv.Finalizers, finalizerProvisioner) {
			return stepUnholdPV
		}
		return stepNothing
	case s.optIn && s.pv.Annotations[annAbandoned] == "":
		return stepAbandon
	}
	return stepNothing
}

// isReleased tells whether a volume's claim is gone, and nobody has put another in its place.
func isReleased(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
}

// usersOf picks the pods that use a claim and have not ended. A pod whose generic ephemeral volume would have a claim of that
// name uses it only if the claim was made for it.
func usersOf(pods []corev1.Pod, claim *corev1.PersistentVolumeClaim) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		named := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		})
		made := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Ephemeral != nil && ephemeralClaim(&pod, v) == claim.Name
		})
		return ended || !named && (!made || !metav1.IsControlledBy(claim, &pod))
	})
}
