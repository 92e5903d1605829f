package move

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// maxClaims bounds the claims of one move.
const maxClaims = 32

// mayBegin returns the record of a move that may begin, or a sentence that says why it may not. Both are nil if the claim's volume is not on this node.
func (a *Agent) mayBegin(ctx context.Context, v *view, pods []corev1.Pod) (r *Record, refused, err error) {
	if !isBound(v.claim, v.pv) || shapeOf(v.pv, a.node, v.local.ID.String()) != plain {
		return nil, nil, nil
	}
	to := wants(v.claim)
	if refused := mayMove(v.claim, v.pv, a.node); refused != nil {
		return nil, refused, nil
	}
	if v.local.Access.ReadOnly() { // Hold would refuse it, after its pods have ended
		return nil, errors.New("the volume is a read-only copy, which does not move: create another one from a snapshot on that node"), nil
	}
	if runs, err := a.objects.RunsDriver(ctx, to); err != nil || !runs {
		return nil, fmt.Errorf("the driver does not run on node %s, which the annotation %s names: correct it", kubeclient.Quoted(to), api.AnnotationMoveTo), err
	}
	if refused, err := a.mayPlace(ctx, v.pv.Spec.StorageClassName, to); refused != nil || err != nil {
		return nil, refused, err
	}
	with, refused, err := a.companions(ctx, v.claim, pods)
	if refused != nil || err != nil {
		return nil, refused, err
	}
	if r, refused = newRecord(v.pv, v.claim, a.node, to, with); refused != nil {
		return nil, refused, nil
	}
	switch err := a.objects.CreateVolume(ctx, r.onSource(true), true); {
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err):
		return nil, fmt.Errorf("the API server would not let node %s create PersistentVolume %s again, so it cannot be moved: %w", a.node, v.pv.Name, err), nil
	case err != nil:
		return nil, nil, err
	}
	return r, nil, nil
}

// mayPlace checks that a storage class allows volumes on a node. A class that was deleted allows none: nothing says where its volumes may be.
func (a *Agent) mayPlace(ctx context.Context, name, node string) (refused, err error) {
	class, err := a.objects.Class(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case class == nil || class.Provisioner != api.DriverName:
		return fmt.Errorf("storage class %s does not exist, or is not one of %s: nothing says where its volumes may be", kubeclient.Quoted(name), api.DriverName), nil
	}
	allowed := func(term corev1.TopologySelectorTerm) bool {
		return !slices.ContainsFunc(term.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return e.Key != api.TopologyKey || !slices.Contains(e.Values, node)
		})
	}
	if len(class.AllowedTopologies) > 0 && !slices.ContainsFunc(class.AllowedTopologies, allowed) {
		return fmt.Errorf("storage class %s allows no volume on node %s (allowedTopologies)", class.Name, node), nil
	}
	return nil, nil
}

// mayMove checks a claim and its PersistentVolume.
func mayMove(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, node string) error {
	to, size := wants(claim), claim.Status.Capacity.Storage()
	switch {
	case isEphemeral(claim):
		return errors.New("the claim is that of a pod's ephemeral volume, and is deleted with its pod")
	case len(validation.IsDNS1123Subdomain(to)) > 0:
		return fmt.Errorf("the annotation %s names %s, which cannot be a node", api.AnnotationMoveTo, kubeclient.Quoted(to))
	case pv.DeletionTimestamp != nil:
		return fmt.Errorf("PersistentVolume %s is being deleted", pv.Name)
	case isCloned(pv):
		return errors.New("a clone of the claim is copied to another node: the move begins when it is complete, or deleted")
	case claim.Annotations[api.AnnotationSelectedNode] != node:
		return fmt.Errorf("the volume is on node %s, but the claim's annotation %s names %s: set it to %s", node, api.AnnotationSelectedNode, kubeclient.Quoted(claim.Annotations[api.AnnotationSelectedNode]), node)
	case len(claim.Status.AllocatedResourceStatuses) > 0 || pending.BytesOf(claim.Spec.Resources.Requests.Storage()) > pending.BytesOf(size) || pending.BytesOf(pv.Spec.Capacity.Storage()) != pending.BytesOf(size):
		return fmt.Errorf("an expansion is pending (the claim requests %s and has %s): the move begins when it is complete. A file system is resized while a pod uses it", claim.Spec.Resources.Requests.Storage(), size)
	case claim.Status.ModifyVolumeStatus != nil:
		return errors.New("a change of the claim's attributes class is pending: the move begins when it is complete")
	}
	return nil
}

// isCloned reports whether a snapshot of the volume was taken for a clone on another node. No node may write that into the next PersistentVolume.
func isCloned(pv *corev1.PersistentVolume) bool {
	for k := range pv.Annotations {
		if strings.HasPrefix(k, api.AnnotationCloneOffer) {
			return true
		}
	}
	return false
}

// companions finds the claims that move together with this one: those of its pods, of the pods that share these, and those that the annotation
// api.AnnotationMoveWith names. Each of them must ask for the same node.
func (a *Agent) companions(ctx context.Context, claim *corev1.PersistentVolumeClaim, pods []corev1.Pod) (with []string, refused, err error) {
	to, open, seen := wants(claim), []string{claim.Name}, map[string]bool{claim.Name: true}
	add := func(name string) {
		if name = strings.TrimSpace(name); name != "" && !seen[name] {
			seen[name] = true
			open = append(open, name)
		}
	}
	for len(open) > 0 {
		name := open[0]
		open = open[1:]
		if len(seen) > maxClaims {
			return nil, fmt.Errorf("more than %d claims would move together: those of the pods that share claims", maxClaims), nil
		}
		other, own := claim, true
		if name != claim.Name {
			if other, own, refused, err = a.companion(ctx, claim, name, to); refused != nil || err != nil {
				return nil, refused, err
			}
		}
		if !own {
			delete(seen, name)
			seen[name+"/"] = true // not to be asked again
			continue
		}
		for _, n := range strings.Split(other.Annotations[api.AnnotationMoveWith], ",") {
			add(n)
		}
		for i := range pods {
			if p := &pods[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && pending.UsesClaim(p, name) {
				for _, n := range pending.ClaimNames(p) {
					if !seen[n+"/"] {
						add(n)
					}
				}
			}
		}
	}
	delete(seen, claim.Name)
	maps.DeleteFunc(seen, func(name string, _ bool) bool { return strings.HasSuffix(name, "/") })
	return slices.Sorted(maps.Keys(seen)), nil, nil
}

// isEphemeral reports whether a claim is that of a generic ephemeral volume: it is deleted with its pod, as each move needs it.
func isEphemeral(claim *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(claim)
	return owner != nil && owner.APIVersion == "v1" && owner.Kind == "Pod"
}

// companion reads another claim of a pod; own is false if it does not have to move: it has no volume of this driver, or one on the target, or is
// deleted with the pod.
func (a *Agent) companion(ctx context.Context, claim *corev1.PersistentVolumeClaim, name, to string) (other *corev1.PersistentVolumeClaim, own bool, refused, err error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, false, fmt.Errorf("a pod or the annotation %s names %s, which cannot be a claim: correct it", api.AnnotationMoveWith, kubeclient.Quoted(name)), nil
	}
	if other, err = a.objects.Claim(ctx, claim.Namespace, name); err != nil || other == nil || other.Spec.VolumeName == "" || isEphemeral(other) {
		return other, false, nil, err
	}
	pv, err := a.objects.Volume(ctx, other.Spec.VolumeName)
	if err == nil && (pv == nil || isMarked(pv) && !a.waitsFor(pv, claim, to)) {
		return other, false, fmt.Errorf("claim %s, which a pod uses together with this one, has no PersistentVolume, or is still moving", name), nil
	}
	if err != nil || !names(pv, other) || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName {
		return other, false, nil, err
	}
	switch on := pending.NodeOf(pv); {
	case on == to:
		return other, false, nil, nil
	case on != a.node:
		return other, false, fmt.Errorf("claim %s, which a pod uses together with this one, is on node %s, not on node %s: first move it there", name, kubeclient.Quoted(on), a.node), nil
	case wants(other) != to:
		return other, false, fmt.Errorf("a pod uses this claim together with claim %s: the claims of a pod move together. Annotate that one, too: kubectl -n %s annotate pvc %s %s=%s",
			name, claim.Namespace, name, api.AnnotationMoveTo, to), nil
	}
	return other, true, nil, nil
}

// waitsFor reports whether the PersistentVolume of another claim waits for this claim to begin the same move.
func (a *Agent) waitsFor(pv *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim, to string) bool {
	r := parseRecord(pv.Annotations[api.AnnotationMoveRecord])
	return r != nil && r.From == a.node && r.To == to && r.Namespace == claim.Namespace && slices.Contains(r.With, claim.Name)
}
