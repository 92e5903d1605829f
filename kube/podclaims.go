package kube

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// A volume cannot be moved to another node. If this node creates one volume of a pod and lacks capacity for the next, the
// pod can never be scheduled. So CreateVolume first asks for the claim's peers.

// podClaimsTimeout is the time limit of the API requests for one claim.
const podClaimsTimeout = 10 * time.Second

// PodClaims finds the peers of a claim. It costs one list of pods, which simultaneous calls share, and one read for each
// further claim, two if that is bound; a pod's only claim costs nothing more. It leaves out claims which never have a volume
// of this driver: those that are missing or being deleted, and those of an Immediate class; and of a pod that lacks
// missingMost claims, all after these. An error is the API server's.
func (a *Agent) PodClaims(ctx context.Context, namespace, claim string) (api.PodClaims, error) {
	ctx, cancel := context.WithTimeout(ctx, podClaimsTimeout)
	defer cancel()
	pods, err := a.pods.waiting(ctx, namespace)
	if err != nil {
		return api.PodClaims{}, err
	}
	return a.gather(ctx, pods, namespace, claim)
}

// Asked counts a CreateVolume call for a claim until answered is called, so that the agent does not retry the claim.
func (a *Agent) Asked(namespace, claim string) (answered func()) {
	return a.claims.asked(namespace + "/" + claim)
}

// Waiting reports, without a request, whether a claim exists and has no volume yet.
func (a *Agent) Waiting(namespace, claim, uid string) bool {
	waiting, ok := a.claims.waiting(namespace + "/" + claim)
	return ok && string(waiting.UID) == uid && waiting.Spec.VolumeName == ""
}

// WaitingHere reports, without a request, whether a claim waits for its volume and the scheduler has selected this node for it.
func (a *Agent) WaitingHere(namespace, claim, uid string) bool {
	waiting, ok := a.claims.waiting(namespace + "/" + claim)
	return ok && string(waiting.UID) == uid && waiting.Spec.VolumeName == "" && waiting.DeletionTimestamp == nil &&
		pending.NodeOfClaim(waiting, nil) == a.claims.node
}

// Warn writes a warning event on a claim, and does not repeat it under the same reason while the event lasts. It logs a
// failure to write.
func (a *Agent) Warn(ctx context.Context, namespace, claim, uid, reason, message string) {
	n := kubeclient.Event{About: kubeclient.AboutClaim(namespace, claim, types.UID(uid)), Kind: corev1.EventTypeWarning, Reason: reason, Message: message}
	if err := a.events.RecordOnce(ctx, n); err != nil {
		a.log.WarnContext(ctx, "cannot write an event", "reason", reason, "about", namespace+"/"+claim, "message", message, "error", err)
	}
}

// isWaiting reports whether the scheduler may be choosing a node for the pod.
func isWaiting(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// owns reports whether the pod may use the claim: one with the name of its generic ephemeral volume must have been created
// for it.
func (pod *waitingPod) owns(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return !slices.Contains(pod.ephemeral, claim.Name) || owner != nil && owner.UID == pod.uid
}

// podClaim returns what api.PodClaims needs of a claim; ours is false if this driver creates no volume for it. The caller reads
// the claim from the API server, not from the store: an outdated selected node would lead to wrong decisions.
func (a *Agent) podClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s api.PodClaim, ours bool, err error) {
	switch {
	case claim.DeletionTimestamp != nil:
		return api.PodClaim{}, false, nil
	case claim.Spec.VolumeName != "":
		return a.boundPodClaim(ctx, claim)
	}
	class, err := a.classNamed(ctx, kubeclient.ClassOf(claim))
	if err != nil || class == nil || bindsImmediately(class) {
		return api.PodClaim{}, false, err
	}
	s = api.PodClaim{Name: claim.Name, UID: string(claim.UID), Node: pending.NodeOfClaim(claim, nil), ByOthers: pending.IsBoundByOthers(claim)}
	if s.ByOthers && claim.Spec.Selector == nil {
		return s, true, nil
	}
	s.Size, s.Parameters = int64(pending.BytesOf(claim.Spec.Resources.Requests.Storage())), class.Parameters
	s.Block = claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
	s.FromSnapshot, s.FromClaim = pending.SnapshotOf(claim), pending.ClonedFrom(claim)
	for _, mode := range claim.Spec.AccessModes {
		s.AccessModes = append(s.AccessModes, string(mode))
	}
	return s, true, nil
}

func (a *Agent) boundPodClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (s api.PodClaim, ours bool, err error) {
	pv, err := a.client.Volume(ctx, claim.Spec.VolumeName)
	if err != nil || pv == nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName || !pending.MayBind(pv, claim) {
		return api.PodClaim{}, false, err
	}
	return api.PodClaim{Name: claim.Name, UID: string(claim.UID), Node: pending.NodeOfClaim(claim, pv), Bound: true}, true, nil
}

// classNamed finds a class of this driver in the store or, until the watch has brought it, at the API server. Nil: no class
// of this driver has that name.
func (a *Agent) classNamed(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if class, ok, _ := a.classes.Find(name); ok || name == "" {
		return class, nil
	}
	class, err := a.client.Class(ctx, name)
	if err != nil || class == nil || class.Provisioner != api.DriverName {
		return nil, err
	}
	return class, nil
}
