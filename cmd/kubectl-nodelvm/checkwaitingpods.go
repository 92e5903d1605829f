package main

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// eventful returns the objects whose events the checks read: waiting claims, pods that wait with all of their volumes, and claims
// whose expansion is not complete, with their pods.
func (f *facts) eventful() (about []subject) {
	waiting := f.waitingClaims()
	for _, claim := range waiting[:min(len(waiting), claimsReported)] {
		about = append(about, subject{claim.Namespace, claim.UID})
	}
	for _, pod := range f.waitingPods() {
		about = append(about, subject{pod.Namespace, pod.UID})
	}
	for _, e := range f.expansions() {
		about = append(about, subject{e.claim.Namespace, e.claim.UID})
		if e.pod != nil {
			about = append(about, subject{e.pod.Namespace, e.pod.UID})
		}
	}
	return about
}

// waitingPods returns pods that wait although all of their claims have volumes, one of them the driver's; at most claimsReported.
func (f *facts) waitingPods() (waiting []*corev1.Pod) {
	bound, ours := map[string]bool{}, f.volumesByClaim()
	for _, claim := range f.claims {
		bound[claim.Namespace+"/"+claim.Name] = claim.Status.Phase == corev1.ClaimBound
	}
	for i := range f.pods {
		pod := &f.pods[i]
		all, one := true, false
		for _, name := range pending.ClaimNames(pod) {
			all = all && bound[pod.Namespace+"/"+name]
			one = one || ours[pod.Namespace+"/"+name] != nil
		}
		if all && one && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil && len(waiting) < claimsReported {
			waiting = append(waiting, pod)
		}
	}
	return waiting
}

// checkWaitingPods reports pods that the scheduler cannot place with their volumes, and pods whose volumes the kubelet cannot mount. The
// image of a pod, for example, is not the driver's matter.
func checkWaitingPods(f *facts, found func(where, what, fix string)) {
	ours := f.volumesByClaim()
	for _, pod := range f.waitingPods() {
		facts := f.ofPod(*pod)
		if pod.Spec.NodeName != "" {
			facts.Events = nil
			for _, name := range pending.ClaimNames(pod) {
				pv := ours[pod.Namespace+"/"+name]
				if pv == nil {
					continue
				}
				if e := lastWarningOf(f.events[pod.UID], pv.Name, "FailedMount", "FailedMapVolume", "FailedAttachVolume"); e != nil {
					facts.Events = append(facts.Events, *e)
				}
			}
		}
		if pod.Spec.NodeName != "" && len(facts.Events) == 0 || pod.Spec.NodeName == "" && !pending.IsUnschedulable(pod) {
			continue
		}
		for _, cause := range pending.ExplainPod(facts).Causes {
			found("pod "+pod.Namespace+"/"+pod.Name, cause.Text, cause.Fix)
		}
	}
}

// expansion is one that is not complete.
type expansion struct {
	claim *corev1.PersistentVolumeClaim
	pod   *corev1.Pod // one that uses the claim, or nil
}

// expansions returns those of the driver's volumes; at most claimsReported.
func (f *facts) expansions() (list []expansion) {
	ours := f.volumesByClaim()
	for i := range f.claims {
		claim := &f.claims[i]
		request, capacity := claim.Spec.Resources.Requests[corev1.ResourceStorage], claim.Status.Capacity[corev1.ResourceStorage]
		if ours[claim.Namespace+"/"+claim.Name] == nil || capacity.IsZero() || pending.BytesOf(&request) <= pending.BytesOf(&capacity) || len(list) == claimsReported {
			continue
		}
		e := expansion{claim: claim}
		for j := range f.pods {
			if !hasEnded(&f.pods[j]) && uses(&f.pods[j], claim) {
				e.pod = &f.pods[j]
			}
		}
		list = append(list, e)
	}
	return list
}

// resizeError returns why the last attempt to expand a claim failed, from the claim's conditions: events last an hour. "": none failed.
func resizeError(claim *corev1.PersistentVolumeClaim) string {
	for _, c := range claim.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PersistentVolumeClaimControllerResizeError || c.Type == corev1.PersistentVolumeClaimNodeResizeError) {
			return cmp.Or(c.Message, string(c.Type))
		}
	}
	return ""
}

// checkExpansions reports expansions that failed, with the last error: the driver writes it on the claim, the kubelet on the pod.
func checkExpansions(f *facts, found func(where, what, fix string)) {
	for _, e := range f.expansions() {
		events := f.events[e.claim.UID]
		if e.pod != nil {
			for _, of := range f.events[e.pod.UID] {
				if pv := e.claim.Spec.VolumeName; lastWarningOf([]corev1.Event{of}, pv, api.ReasonVolumeResizeFailed) != nil {
					events = append(events, of)
				}
			}
		}
		why := resizeError(e.claim)
		if last := lastWarningOf(events, "", api.ReasonVolumeResizeFailed); last != nil {
			why = pending.Quote(last, f.now)
		}
		if why == "" {
			continue
		}
		request, capacity := e.claim.Spec.Resources.Requests[corev1.ResourceStorage], e.claim.Status.Capacity[corev1.ResourceStorage]
		found("claim "+e.claim.Namespace+"/"+e.claim.Name, fmt.Sprintf("its expansion from %s to %s fails: %s", capacity.String(), request.String(), why),
			"follow the message; see docs/howto/expand.md")
	}
}
