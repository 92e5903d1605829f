package nodeloss

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// This file decides the next step for a volume whose node or group is lost; steps.go does it.

// loss is the reason why a volume is unreachable, perhaps for ever.
type loss struct {
	kind lossKind
	node string
}

type lossKind string

const (
	lossNone  lossKind = ""
	lossGone  lossKind = "gone"           // the Node object does not exist
	lossTaint lossKind = "out-of-service" // an admin has set this taint, and the node is not Ready: it is shut down
	lossGroup lossKind = "group"          // the node exists and reports that the volume group is missing
)

// lossOf determines whether a volume on that node is lost. node is nil if the Node object does not exist. A node that is
// only NotReady, unreachable or cordoned is not lost. Neither is one that is Ready again, whatever its taints: its driver
// would remove what the controller releases.
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
	silent := !answers && len(node.Status.Conditions) > 0 // its report of the group may be out of date
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

// subject names what is lost.
func (l loss) subject() string {
	if l.kind == lossGroup {
		return "the volume group"
	}
	return l.node
}

// step is the next step for a volume.
type step int

const (
	stepNothing     step = iota
	stepClearLoss        // The volume is back: remove the annotations.
	stepMark             // Record when the loss was first observed, which begins the grace period. The time of a taint does not count.
	stepReport           // Report what the owner can do; check again after the grace period, or when the event expires.
	stepInUse            // Report that a running pod uses the claim.
	stepDeleteClaim      // Delete the claim, with the other due ones of its pods, so that its owner can create another. Then delete the pods.
	stepDeletePods       // Delete the pods that wait for it, after the other due claims of those.
	stepAwait            // Wait for Kubernetes' own controllers.
	stepDeletePV
	stepRemoveFinalizer // Remove csi-provisioner's finalizer: no other process does.
	stepAbandon         // The PersistentVolume is retained: record that its claim was released.
	stepReportBroken    // Report, on the object that refers to another without being bound to it, that the controller ignores it.
)

// watchFirst is how much of the grace period one controller must have observed itself, whatever the clocks say. While none ran, the node may have been
// back, or the clock of the earlier controller, or this one's before it was set, may have been wrong.
const watchFirst = 10 * time.Minute

// releaseAt is when the release is due of a loss recorded at marked, which this controller has watched for that long.
func releaseAt(marked, now time.Time, watched, grace time.Duration) time.Time {
	at := marked.Add(grace)
	if seen := now.Add(min(grace, watchFirst) - watched); seen.After(at) {
		return seen
	}
	return at
}

// observation has all that decides the next step for one volume, as just read.
type observation struct {
	Now     time.Time
	Watched time.Duration // How long this controller has observed the loss.
	Grace   time.Duration
	Loss    loss
	Pv      *corev1.PersistentVolume
	Claim   *corev1.PersistentVolumeClaim // The claim that the volume is bound to; nil if it no longer exists.
	broken  error                         // Broken link of the chain from the volume to its claim and its node: no step.
	OptIn   bool                          // The class says release.
	users   []corev1.Pod                  // Pods that use the claim and have not ended.
	lost    time.Time                     // When the controllers first observed the loss.
	Marked  time.Time                     // AnnotationLostSince; zero if it is missing, or if no controller can have written it for this loss.
}

func (s observation) releaseAt() time.Time {
	return releaseAt(s.Marked, s.Now, s.Watched, s.Grace)
}

func (s observation) due() bool { return !s.Marked.IsZero() && !s.Now.Before(s.Marked.Add(s.Grace)) }

// decide returns the next step. The objects record all earlier steps, so a restarted controller continues where the previous one
// ended.
func decide(s observation) step {
	switch {
	case s.broken != nil:
		return stepReportBroken
	case s.Loss.kind == lossNone && s.Marked.IsZero() && s.Pv.Annotations[api.AnnotationReclaimPolicy] == "":
		return stepNothing
	case s.Loss.kind == lossNone:
		return stepClearLoss
	case s.Marked.IsZero():
		return stepMark
	case !s.due():
		return stepReport
	case s.Claim != nil:
		return decideBound(s)
	default:
		return decideReleased(s)
	}
}

func decideBound(s observation) step {
	switch {
	case !s.OptIn, s.moves(), s.Claim.DeletionTimestamp == nil && s.Now.Before(s.releaseAt()):
		return stepReport
	case slices.ContainsFunc(s.users, s.alive):
		return stepInUse
	case s.Claim.DeletionTimestamp == nil:
		return stepDeleteClaim
	case slices.ContainsFunc(s.users, s.removable):
		return stepDeletePods
	default:
		return stepAwait
	}
}

// alive reports whether a pod may be running: on another node, or on this one if only a group is lost.
func (s observation) alive(pod corev1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil && pod.Spec.NodeName == s.Loss.node {
		return false
	}
	return pod.Spec.NodeName != s.Loss.node || s.Loss.kind == lossGroup && pod.Status.Phase != corev1.PodPending
}

// removable reports whether the controller may delete a pod: it waits for the claim, or was on the lost node, whose kubelet no
// longer removes it. If only the group is lost, the kubelet does.
func (s observation) removable(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil || s.ownerless(pod)
}

func (s observation) ownerless(pod corev1.Pod) bool {
	return pod.Spec.NodeName == s.Loss.node && s.Loss.kind != lossGroup
}

// podsAppear is how long after the deletion of a claim an operator may still create a pod that needs it, because its own watch is late.
const podsAppear = 10 * time.Second

// releasedAt is when the volume controller found the claim of a released volume gone; zero: it did not record that.
func releasedAt(pv *corev1.PersistentVolume) time.Time {
	if at := pv.Status.LastPhaseTransitionTime; at != nil {
		return at.Time
	}
	return time.Time{}
}

// decideReleased decides for a volume whose claim no longer exists. If its policy is Delete, its owner has deleted the data
// with the claim: only the object is left, and only the lost node would remove that.
func decideReleased(s observation) step {
	if s.Pv.Spec.ClaimRef == nil || s.Pv.Spec.ClaimRef.UID == "" || !kubeclient.IsReleased(s.Pv) {
		return stepNothing // pre-provisioned and never bound, or the volume controller has yet to see that the claim is gone
	}
	if s.OptIn && s.Now.Before(releasedAt(s.Pv).Add(min(podsAppear, s.Grace))) {
		return stepAwait
	}
	if s.copied().node != "" {
		return stepNothing
	}
	policy := cmp.Or(policyBefore(s.Pv), s.Pv.Spec.PersistentVolumeReclaimPolicy)
	switch {
	case policy == corev1.PersistentVolumeReclaimDelete && (s.Loss.kind == lossGone || s.OptIn):
		if s.Pv.DeletionTimestamp == nil {
			return stepDeletePV
		}
		if slices.Contains(s.Pv.Finalizers, api.FinalizerProvisioner) {
			return stepRemoveFinalizer
		}
		return stepNothing
	case s.OptIn && s.Pv.Annotations[api.AnnotationAbandonedSince] == "":
		return stepAbandon
	}
	return stepNothing
}

// uses reports whether a pod uses a claim and has not ended. A pod with a generic ephemeral volume of that name uses the claim only if it
// was created for that volume.
func uses(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	return names(pod, claim.Name) || pending.UsesClaim(pod, claim.Name) && metav1.IsControlledBy(claim, pod)
}

// names reports whether a volume of a pod names a claim.
func names(pod *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
	})
}

// A volume that moves (kube/move) has its PersistentVolume on the source until the target creates its own. If the source is lost in between, its
// data may be on the target, and a claim that is created again would be empty. If it is not, the source has the volume's reclaim policy in the record of the
// move: when the source is back and the claim is gone, it restores that policy, and Delete deletes the volume. So nothing is released.

// moves reports whether a volume moves. Its node writes that, and can hold back what would be done to its own volumes alone.
func (s observation) moves() bool { return s.Pv.Annotations[api.AnnotationMovingTo] != "" }

// copyOf is what the PersistentVolume of a volume says about a complete copy on another node.
type copyOf struct {
	node  string // "": there is none
	moved bool   // that node knows that the volume is its own
}

// copied reads it. The annotations are the two nodes': one of them can only hold the release of that volume back.
func (s observation) copied() copyOf {
	var answer struct {
		Received  string `json:"received"`
		Confirmed string `json:"confirmed"`
	}
	_ = json.Unmarshal([]byte(s.Pv.Annotations[api.AnnotationMoveAnswer]), &answer) // else there is none
	to := s.Pv.Annotations[api.AnnotationMovingTo]
	if len(validation.IsDNS1123Subdomain(to)) > 0 || to == s.Loss.node || answer.Received == "" && answer.Confirmed == "" && s.Pv.Annotations[api.AnnotationHandedOver] == "" {
		return copyOf{}
	}
	return copyOf{node: to, moved: answer.Confirmed != ""}
}

// remedyOfMove says what the owner of a claim can do whose volume moves; "": what the owner of any other can do.
func (s observation) remedyOfMove() string {
	switch c := s.copied(); {
	case c.node == "" && s.moves() && s.OptIn:
		return fmt.Sprintf("nodelvm-controller does not delete this claim: node %s has the only complete copy%s. The move goes on when %s is back. "+
			"If you can do without the data, delete this claim, the other lost claims of its pod, and the pod.", s.Loss.node, s.withoutClaim(), s.Loss.subject())
	case c.node == "":
		return ""
	case !c.moved:
		return fmt.Sprintf("Node %s has a complete copy, but does not know whether node %s has handed the volume over: the move goes on when %s is back. nodelvm deletes nothing.", c.node, s.Loss.node, s.Loss.subject())
	default:
		return fmt.Sprintf("Node %s has this volume's data since its move. To use it there without %s, an admin runs kubectl -n %s annotate pvc %s --overwrite %s=%s, then kubectl delete pv %s --wait=false, "+
			"and removes that object's finalizers: node %s creates it again. nodelvm deletes nothing.", c.node, s.Loss.subject(), s.Claim.Namespace, s.Claim.Name, api.AnnotationSelectedNode, c.node, s.Pv.Name, c.node)
	}
}

// withoutClaim says what the returning source of a move would do with a volume whose claim is gone; "": the record of the move does not say.
func (s observation) withoutClaim() string {
	var record struct {
		Policy corev1.PersistentVolumeReclaimPolicy `json:"policy"`
	}
	_ = json.Unmarshal([]byte(s.Pv.Annotations[api.AnnotationMoveRecord]), &record) // else there is none
	switch record.Policy {
	case corev1.PersistentVolumeReclaimDelete:
		return ", and without the claim it would delete the volume with its data (reclaim policy Delete)"
	case corev1.PersistentVolumeReclaimRetain:
		return ", and without the claim it would end the move and keep the volume with its data (reclaim policy Retain)"
	case corev1.PersistentVolumeReclaimRecycle:
	}
	return ""
}
