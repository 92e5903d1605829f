package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

// lost is the sound cluster after the power of node-2 was cut, with a pod that used its volume.
func lost() *facts {
	f := sound()
	f.nodes = []corev1.Node{{ObjectMeta: labelled("node-1")}, {ObjectMeta: labelled("node-2"), Status: corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "Kubelet stopped posting node status."}}}}}
	claim := expandedClaim("4Gi")
	claim.Name, claim.UID, claim.Spec.VolumeName = "data-db-1", "data-db-1", "pvc-2"
	f.claims, f.pods = []corev1.PersistentVolumeClaim{claim}, []corev1.Pod{userOf("data-db-1", "db-1")}
	f.pods[0].Spec.NodeName, f.pods[0].Status.Phase = "node-2", corev1.PodRunning
	silence(f)
	f.drivers[1].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "NodeNotReady"}}
	return f
}

// collected is the same, after the Node object was deleted, and Kubernetes has collected what was on it. The pod's controller has created it again.
func collected() *facts {
	f := lost()
	f.nodes, f.drivers, f.answers, f.csiNodes, f.capacities = f.nodes[:1], f.drivers[:1], f.answers[:1], f.csiNodes[:1], f.capacities[:2]
	f.daemonSet.Status.DesiredNumberScheduled = 1
	f.pods = []corev1.Pod{unscheduled("data-db-1", "db-1")}
	f.pods[0].Status.Conditions[0].Reason = corev1.PodReasonUnschedulable
	return f
}

// released is the same, after nodelvm-controller has deleted the claim, and its StatefulSet has created it again on node-1.
func released() *facts {
	f := collected()
	f.contents = nil
	f.volumes[1] = volume("pvc-3", "node-1", vg1, "shop/data-db-1", "4Gi")
	again := f.answers[0].page.Volumes[0]
	again.ID, again.LV, again.Name, again.Claim = vg1+"/pvc-3", "pvc-3", "pvc-3", "shop/data-db-1"
	f.answers[0].page.Volumes = append(f.answers[0].page.Volumes, again)
	f.claims[0].Spec.VolumeName, f.pods[0].Spec.NodeName, f.pods[0].Status.Phase = "pvc-3", "node-1", corev1.PodRunning
	return f
}

// TestDoctorOfALostNode: doctor says what the loss of a node means, each thing once, and nothing more when another node has the new volume.
func TestDoctorOfALostNode(t *testing.T) {
	for name, test := range map[string]struct {
		f    *facts
		want []string
	}{
		"without power": {lost(), []string{"nodes ready: node-2: the node is not Ready, so pods with its volumes cannot run: Kubelet stopped posting node status."}},
		"without its object": {collected(), []string{
			`lost volumes: claim shop/data-db-1: its volume pvc-2 is on "node-2", and the cluster has no such node: no pod can use the volume`,
			"lost snapshots: snapshots of node-2: the cluster has no node node-2, which has the snapshots shop/snap-1: no volume can be restored from them",
			"waiting pods: pod shop/db-1: its volume (claim data-db-1) is on node-2, which is deleted: the cluster has no such node",
		}},
		"after the release": {released(), nil},
	} {
		var got []string
		for _, x := range examine(test.f).Findings {
			got = append(got, x.Check+": "+x.Where+": "+x.What)
			if strings.Contains(x.Fix, "DaemonSet") {
				t.Errorf("%s: %s does not help", name, x.Fix)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n%s", name, strings.Join(got, "\n"))
		}
	}
}

// TestDoctorNamesTheFormerCopy: of a volume that moved to the node before it was lost, another node still has a copy.
func TestDoctorNamesTheFormerCopy(t *testing.T) {
	f := collected()
	page := &f.answers[0].page
	left := page.Volumes[0]
	left.ID, left.LV, left.Name, left.Claim, left.State = vg1+"/pvc-2", "pvc-2", "pvc-2", "shop/data-db-1", string(lvm.StateMoved)
	page.Volumes = append(page.Volumes, left)
	i := slices.IndexFunc(examine(f).Findings, func(x finding) bool { return x.Check == "lost volumes" })
	if i < 0 || !strings.Contains(examine(f).Findings[i].Fix, "or use the copy that it left on node-1 when it moved, with what was written before: docs/howto/move.md#the-former-copy") {
		t.Errorf("%+v", examine(f).Findings)
	}
}
