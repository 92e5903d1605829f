package main

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
	"github.com/nodelvm/nodelvm/pending"
)

// isMoving reports whether the agents work on the move of a claim: its PersistentVolume has their annotations, or does not exist for a moment. Without
// the right to read PersistentVolumes it is what the claim's status says.
func (f *moveFacts) isMoving(claim *corev1.PersistentVolumeClaim) (to string, moving bool) {
	s, _ := api.MoveStatusOf(claim.Annotations)
	pv := f.volume(claim)
	switch {
	case f.volumes == nil, pv == nil && claim.Status.Phase == corev1.ClaimLost:
		return s.To, s.IsUnderWay()
	case pv == nil:
		return "", false
	}
	to = pv.Annotations[api.AnnotationMovingTo]
	return to, to != ""
}

// mayNotMove returns a sentence that says why a claim's volume cannot move to a node, and what to do; "": it can, as far as the claim and its volume
// show. to is "" if the node is not chosen yet.
func (f *moveFacts) mayNotMove(claim *corev1.PersistentVolumeClaim, to string) string {
	name, where := "claim "+claim.Namespace+"/"+claim.Name, "kubectl -n "+claim.Namespace
	on := f.nodeOf(claim)
	target, moving := f.isMoving(claim)
	selected := claim.Annotations[api.AnnotationSelectedNode]
	switch {
	case claim.DeletionTimestamp != nil:
		return name + " is being deleted"
	case moving && target != to:
		return fmt.Sprintf("%s is moving to node %s already: wait for it (kubectl nodelvm moves -n %s), or cancel it (kubectl nodelvm move -n %s %s --cancel)", name, target, claim.Namespace, claim.Namespace, claim.Name)
	case moving:
		return ""
	case claim.Spec.VolumeName == "":
		return fmt.Sprintf("%s has no volume (%s), so there is nothing to move; why: kubectl nodelvm why -n %s pvc/%s", name, claim.Status.Phase, claim.Namespace, claim.Name)
	case claim.Status.Phase != corev1.ClaimBound:
		return fmt.Sprintf("%s is not bound to its PersistentVolume %s (%s). If that lasts: kubectl nodelvm doctor", name, claim.Spec.VolumeName, claim.Status.Phase)
	case !f.isOurs(claim):
		return fmt.Sprintf("%s has a volume of another driver%s, which nodelvm cannot move", name, suffix(": ", api.ProvisionerOf(claim.Annotations)))
	case on == "":
		return name + " is on a node that is not known: its PersistentVolume does not name one node"
	case on == to:
		return fmt.Sprintf("%s is on node %s already", name, to)
	case slices.Contains(claim.Spec.AccessModes, corev1.ReadOnlyMany):
		return fmt.Sprintf("%s is a read-only copy, which does not move: create another one from a snapshot on that node", name)
	case selected != on:
		return fmt.Sprintf("the volume of %s is on node %s, but its annotation %s is %q: %s annotate pvc %s --overwrite %s=%s", name, on, api.AnnotationSelectedNode, selected, where, claim.Name, api.AnnotationSelectedNode, on)
	}
	return f.mayNotRebuild(claim, name)
}

// mayNotRebuild is about the PersistentVolume, which the nodes create again.
func (f *moveFacts) mayNotRebuild(claim *corev1.PersistentVolumeClaim, name string) string {
	if class := api.ClassOf(claim.Annotations, claim.Spec.StorageClassName); f.classes != nil && f.class(class) == nil {
		return fmt.Sprintf("storage class %q of %s does not exist, so nothing says where its volumes may be: create it again", class, name)
	}
	pv := f.volume(claim)
	switch {
	case pv == nil:
		return ""
	case pv.DeletionTimestamp != nil:
		return fmt.Sprintf("PersistentVolume %s of %s is being deleted", pv.Name, name)
	case pv.Name != api.PrefixVolume+string(claim.UID):
		return fmt.Sprintf("PersistentVolume %s of %s was not created for it (its name is not %s%s): only volumes that a StorageClass created can move. Restore a snapshot or a backup on the other node instead", pv.Name, name, api.PrefixVolume, claim.UID)
	case len(pv.Labels) > 0:
		return fmt.Sprintf("PersistentVolume %s of %s has labels, which no node may write: remove them, and add them again after the move", pv.Name, name)
	case len(pv.OwnerReferences) > 0:
		return fmt.Sprintf("PersistentVolume %s of %s has an owner, which no node may write: remove metadata.ownerReferences", pv.Name, name)
	}
	return ""
}

// begins returns what holds a move back although it may begin later; "": nothing.
func begins(claim *corev1.PersistentVolumeClaim) string {
	request, size := claim.Spec.Resources.Requests.Storage(), claim.Status.Capacity.Storage()
	switch {
	case len(claim.Status.AllocatedResourceStatuses) > 0 || pending.BytesOf(request) > pending.BytesOf(size):
		return fmt.Sprintf("claim %s has a pending expansion from %s to %s: the move begins when it is complete; a file system is resized while a pod uses it", claim.Name, size, request)
	case claim.Status.ModifyVolumeStatus != nil:
		return fmt.Sprintf("claim %s has a pending change of its attributes class: the move begins when it is complete", claim.Name)
	}
	return ""
}

// isEphemeral reports whether a claim is that of a pod's generic ephemeral volume: it is deleted with the pod.
func isEphemeral(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.Kind == "Pod" && owner.APIVersion == "v1"
}

// withoutController returns a sentence about a pod that nothing creates again when it is deleted, as it has to be for a move; "": something does.
func withoutController(pod *corev1.Pod) string {
	if metav1.GetControllerOf(pod) != nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return ""
	}
	name := printable.ShellWord(pod.Name)
	return fmt.Sprintf("pod %s/%s uses the volume on node %s and has no controller, so nothing creates it again: keep its manifest (kubectl -n %s get pod %s -o yaml), delete it, and repeat the command", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Namespace, name)
}

// suffix returns a text behind its separator; "": there is no text.
func suffix(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// claimNamed returns the claim that an argument names: NAME or pvc/NAME.
func (f *moveFacts) claimNamed(namespace, argument string) (*corev1.PersistentVolumeClaim, error) {
	name := argument
	if kind, rest, cut := strings.Cut(argument, "/"); cut && slices.Contains([]string{"pvc", "persistentvolumeclaim", "claim"}, kind) {
		name = rest
	}
	if claim := f.claim(namespace, name); claim != nil {
		return claim, nil
	}
	return nil, fmt.Errorf("namespace %s has no claim %q; choose the namespace with -n", namespace, name)
}
