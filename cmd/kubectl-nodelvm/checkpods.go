package main

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
)

// checkBudgets reports PodDisruptionBudgets that require all of their pods, one of which has a volume: a drain of its node waits. It leaves
// out what an operator manages: it may let another pod take over when the node is cordoned, and the budget then selects that one.
func checkBudgets(f *facts, found func(where, what, fix string)) {
	ours := f.volumesByClaim()
	for _, budget := range f.budgets {
		s := budget.Status
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || s.ExpectedPods == 0 || s.DesiredHealthy < s.ExpectedPods || len(budget.OwnerReferences) > 0 {
			continue
		}
		pod := find(f.pods, func(pod *corev1.Pod) bool {
			return pod.Namespace == budget.Namespace && selector.Matches(labels.Set(pod.Labels)) && !isOfOperator(pod) &&
				slices.ContainsFunc(pending.ClaimNames(pod), func(name string) bool { return ours[pod.Namespace+"/"+name] != nil })
		})
		if pod != nil {
			found("PodDisruptionBudget "+budget.Namespace+"/"+budget.Name,
				fmt.Sprintf("it requires %d of %d pods, so no pod can be evicted now: kubectl drain of node %s waits for pod %s", s.DesiredHealthy, s.ExpectedPods, cmp.Or(pod.Spec.NodeName, "(none yet)"), pod.Name),
				"before a drain, add a replica, lower minAvailable or raise maxUnavailable, unless the program that created the budget moves the pod's role to another pod")
		}
	}
}

// isOfOperator reports whether a pod's controller is none of Kubernetes' own.
func isOfOperator(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && !pending.IsBuiltIn(owner)
}

// checkBlockDevices reports containers that fail, have a raw block volume, and do not run as root: the device belongs to root, and
// fsGroup does not change that. A setting of the container runtime does, but the API does not show it, so checkBlockDevices ignores
// containers that work.
func checkBlockDevices(f *facts, found func(where, what, fix string)) {
	ours := f.volumesByClaim()
	for _, pod := range f.pods {
		devices := map[string]string{} // claims of the driver's volumes, by the volume's name in the pod
		for _, v := range pod.Spec.Volumes {
			if claim := pending.ClaimName(&pod, v); claim != "" && ours[pod.Namespace+"/"+claim] != nil {
				devices[v.Name] = claim
			}
		}
		for _, c := range pod.Spec.Containers {
			i := slices.IndexFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return devices[d.Name] != "" })
			if i < 0 || !isNonRoot(&pod, &c) || !fails(&pod, c.Name) {
				continue
			}
			found("pod "+pod.Namespace+"/"+pod.Name, fmt.Sprintf("its container %s fails, and does not run as root: it cannot open the raw block volume of claim %s, because the device belongs to root and fsGroup does not apply to devices",
				c.Name, devices[c.VolumeDevices[i].Name]),
				"set device_ownership_from_security_context = true in the CRI section of containerd's (or CRI-O's) configuration on the nodes and restart it, or run the container as root; if that is set already, see kubectl -n "+
					pod.Namespace+" logs "+pod.Name+" -c "+c.Name)
		}
	}
}

// isNonRoot reports whether a container's security context says that it does not run as root. An image may say so too, but the
// API does not show that.
func isNonRoot(pod *corev1.Pod, c *corev1.Container) bool {
	var user *int64
	var nonRoot *bool
	if s := pod.Spec.SecurityContext; s != nil {
		user, nonRoot = s.RunAsUser, s.RunAsNonRoot
	}
	if s := c.SecurityContext; s != nil {
		user, nonRoot = cmp.Or(s.RunAsUser, user), cmp.Or(s.RunAsNonRoot, nonRoot)
	}
	return user != nil && *user != 0 || user == nil && nonRoot != nil && *nonRoot
}

// fails reports whether a container ended with an error and does not run now.
func fails(pod *corev1.Pod, container string) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.Name == container && s.State.Running == nil {
			last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
			return last != nil && last.ExitCode != 0
		}
	}
	return false
}

// volumesByClaim returns the driver's bound volumes by claim, "namespace/name". A released volume still names its claim, whose name a
// claim of another driver may have by now.
func (f *facts) volumesByClaim() map[string]*corev1.PersistentVolume {
	volumes := map[string]*corev1.PersistentVolume{}
	for i := range f.volumes {
		if claim := claimOf(&f.volumes[i]); claim != "" && f.volumes[i].Status.Phase == corev1.VolumeBound {
			volumes[claim] = &f.volumes[i]
		}
	}
	return volumes
}

// checkWaitingSnapshots reports snapshots of the driver's volumes that are not ready. checkSnapshots reports those that no node
// creates.
func checkWaitingSnapshots(f *facts, found func(where, what, fix string)) {
	ours := f.volumesByClaim()
	nobodys := map[string]bool{}
	for _, item := range f.contents {
		of := item.Spec.VolumeSnapshotRef
		nobodys[of.Namespace+"/"+of.Name] = item.Labels[api.LabelManagedBy] == ""
	}
	for _, s := range f.snapshots {
		name := s.Namespace + "/" + s.Name
		if s.Status.Ready != nil && *s.Status.Ready || ours[s.Namespace+"/"+s.Spec.Source.Claim] == nil || nobodys[name] {
			continue
		}
		what := "it is not ready, and has no error: csi-snapshotter on the node of its claim " + s.Spec.Source.Claim + " has not finished it"
		fix := "kubectl -n " + s.Namespace + " describe volumesnapshot " + s.Name
		switch _, there := nobodys[name]; {
		case there:
		case f.unreadable[theContents]:
			what = "it is not ready; why is unknown, because its VolumeSnapshotContent could not be read"
		default:
			what = "it is not ready, and has no VolumeSnapshotContent: no snapshot-controller works on it"
			fix += "; kubectl get deployments -A shows whether a snapshot-controller runs"
		}
		if s.Status.Error != nil {
			what = "it is not ready: " + s.Status.Error.Message
		}
		found("VolumeSnapshot "+name, what, fix)
	}
}
