package nodeloss

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/podlist"
	"github.com/nodelvm/nodelvm/pending"
)

// A pod may need several volumes of a lost node. If the controller deleted the pod while some of its claims are left, an operator could
// create a new pod for these, which would wait for ever for the others. So the controller deletes all due claims of a pod, and then the
// pod. A claim that only unscheduled pods use disappears at once, so the controller reads the pods before it deletes the first claim.

// togetherMost bounds how many claims are released together. A tenant's pod may name thousands; the controller releases further ones by themselves.
const togetherMost = 32

// release deletes the claim, unless it is being deleted, with the other due claims of its pods; then the pods. While one of these claims
// is not due, it waits.
func (r *round) release(ctx context.Context, s observation) (time.Duration, error) {
	together, wait, err := r.together(ctx, s)
	if err != nil || wait > 0 {
		return wait, err
	}
	for _, each := range together {
		if each.Claim.DeletionTimestamp != nil {
			continue
		}
		if err := r.deleteClaim(ctx, each); err != nil {
			return 0, err
		}
	}
	ended := map[types.UID]bool{}
	var failed error
	for _, each := range together {
		failed = errors.Join(failed, r.deletePods(ctx, each, ended))
	}
	return checkAgain, failed
}

// podFields are the fields of a Pod that this package reads (k8s.io/api/core/v1/generated.proto).
var podFields = podlist.Fields{
	1: {1: nil, 3: nil, 5: nil, 6: nil, 9: nil, 13: nil}, // metadata: name, namespace, uid, resourceVersion, deletionTimestamp, ownerReferences
	2: {1: {1: nil, 2: {10: nil, 29: {}}}, 10: nil},      // spec: of the volumes name, persistentVolumeClaim and the presence of ephemeral; nodeName
	3: {1: nil},                                          // status: phase
}

// pods returns the wanted pods of a namespace. It fails if it cannot tell which are wanted.
func (r *round) pods(ctx context.Context, namespace string, wanted func(*corev1.Pod) bool) (pods []corev1.Pod, err error) {
	leftOut, err := podlist.Each(ctx, r.Client.Core, namespace, fields.Everything(), podFields, func(pod *corev1.Pod) {
		if wanted(pod) {
			pods = append(pods, *pod.DeepCopy())
		}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot list the pods of namespace %s: %w", namespace, err)
	case leftOut > 0:
		return nil, fmt.Errorf("%d pods of namespace %s have so many volumes that the controller does not read them, and one may use the claim: delete these pods", leftOut, namespace)
	}
	return pods, nil
}

// together returns the observation with those of the other lost volumes that its pods use, and the pods of those. wait: not all of them are due
// before; a volume that moves never is.
func (r *round) together(ctx context.Context, s observation) (found []observation, wait time.Duration, err error) {
	found = []observation{s}
	seen := map[string]bool{s.Pv.Name: true}
	for i := 0; i < len(found); i++ {
		for _, name := range r.volumesOf(found[i]) {
			if seen[name] || len(found) == togetherMost {
				continue
			}
			seen[name] = true
			pv, err := r.Client.Volume(ctx, name)
			if err != nil {
				return nil, 0, err
			}
			if pv == nil || pending.NodeOf(pv) != s.Loss.node {
				continue
			}
			other, err := r.observe(ctx, pv, s.Loss.node)
			if err != nil {
				return nil, 0, err
			}
			switch step := decide(other); {
			case step == stepDeleteClaim || step == stepDeletePods:
				found = append(found, other)
			case step == stepReport && other.OptIn && other.Claim != nil && other.moves():
				return nil, reportAgain, r.report(ctx, s, corev1.EventTypeWarning, api.ReasonVolumeLost, fmt.Sprintf(
					"%s. nodelvm-controller does not delete this claim while a pod needs claim %s too, whose volume was moving to another node. %s", s.Loss, other.Claim.Name, other.remedyOfMove()))
			case step == stepMark || step == stepReport && other.OptIn && other.Claim != nil:
				return nil, max(time.Second, other.releaseAt().Sub(other.Now)), nil
			}
		}
	}
	return found, 0, nil
}

// deletePods deletes the pods that wait for the claim, except those that have ended. Pods on a lost node get a grace period of 0, as from
// Kubernetes' pod garbage collector.
func (r *round) deletePods(ctx context.Context, s observation, ended map[types.UID]bool) (failed error) {
	for _, pod := range s.users {
		if !s.removable(pod) || ended[pod.UID] {
			continue
		}
		ended[pod.UID] = true
		var grace *int64
		if s.ownerless(pod) {
			grace = ptr.To(int64(0))
		}
		switch err := remove(ctx, r.Client.Core, "pods", &pod, grace); {
		case apierrors.IsNotFound(err):
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("cannot delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
		default:
			failed = errors.Join(failed, r.report(ctx, s, corev1.EventTypeNormal, api.ReasonPodDeleted, fmt.Sprintf("deleted pod %s, which waited for this claim", pod.Name)))
		}
	}
	return failed
}

// volumesOf returns the names of the volumes of the same node that the pods of a claim use.
func (r *round) volumesOf(s observation) (names []string) {
	claims := map[string]bool{}
	for _, pod := range s.users {
		for _, name := range pending.ClaimNames(&pod) {
			claims[pod.Namespace+"/"+name] = true
		}
	}
	for _, v := range r.Volumes.On(s.Loss.node) {
		if claims[v.Claim] {
			names = append(names, v.Name)
		}
	}
	return names
}

// dismissPods deletes the unscheduled pods that wait for a claim which the controller deleted and which no longer exists: their controllers
// created them before they saw the deletion, and create them again with their claims. It only reports pods without such a controller.
func (r *round) dismissPods(ctx context.Context, s observation) error {
	ref := s.Pv.Spec.ClaimRef
	if !hasReleased(s.Pv) {
		return nil
	}
	pods, err := r.pods(ctx, ref.Namespace, func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && names(pod, ref.Name)
	})
	if err != nil {
		return err
	}
	claim, err := r.Client.Claim(ctx, ref.Namespace, ref.Name) // after the pods: an operator may create both at any moment, the claim first
	if err != nil || claim != nil {
		return err
	}
	for _, pod := range pods {
		if err := r.dismiss(ctx, s, &pod); err != nil {
			return err
		}
	}
	return nil
}

func (r *round) dismiss(ctx context.Context, s observation, pod *corev1.Pod) error {
	waits := fmt.Sprintf("pod %s waits for claim %s, which nodelvm-controller deleted because %s", pod.Name, s.Pv.Spec.ClaimRef.Name, cmp.Or(s.Loss.String(), "its node or volume group was lost"))
	event := kubeclient.Event{About: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Kind: corev1.EventTypeWarning, Reason: api.ReasonClaimDeleted, Message: waits + ": create the claim again, or delete the pod"}
	owner := metav1.GetControllerOf(pod)
	if owner != nil && !createsClaims(owner) {
		event.Message = fmt.Sprintf("%s: create the claim again, or, if an operator creates %s %s with its claims, delete that", waits, owner.Kind, owner.Name)
	} else if owner != nil {
		if err := remove(ctx, r.Client.Core, "pods", pod, nil); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("cannot delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		event.Kind, event.Reason = corev1.EventTypeNormal, api.ReasonPodDeleted
		event.Message = waits + ": nodelvm-controller deletes this pod, so that its controller creates both again"
	}
	r.Log.InfoContext(ctx, event.Message, "pod", pod.Namespace+"/"+pod.Name, "reason", event.Reason)
	return r.Events.Record(ctx, event)
}

// createsClaims reports whether the controller of a pod may create the pod's claims too: a StatefulSet does, and an operator may.
func createsClaims(owner *metav1.OwnerReference) bool {
	return owner.Kind == "StatefulSet" || !pending.IsBuiltIn(owner)
}
