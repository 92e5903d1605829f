package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// checkMissingPods checks whether each node that the DaemonSet selects has a driver pod. A pod that the API server refuses leaves
// no other trace.
func checkMissingPods(f *facts, found func(where, what, fix string)) {
	set := f.daemonSet
	if set == nil {
		return // checkDaemonSet reports that
	}
	nodes := map[string]bool{}
	for _, pod := range f.drivers {
		nodes[pod.Spec.NodeName] = true
	}
	if want := int(set.Status.DesiredNumberScheduled); len(nodes) < want {
		found("DaemonSet "+set.Namespace+"/"+set.Name, fmt.Sprintf("the DaemonSet selects %d nodes, but %d have a driver pod", want, len(nodes)),
			fmt.Sprintf("kubectl -n %s describe daemonset %s says why; if nodelvm is installed in that namespace, and privileged pods are refused there: kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged --overwrite; if it says \"insufficient quota\": docs/howto/distributions.md#clouds",
				set.Namespace, set.Name, set.Namespace))
	}
}

// checkLostVolumes checks whether bound claims have their PersistentVolumes, and these their volumes on their nodes. A volume that its node
// does not list is lost only if the node's report is complete.
func checkLostVolumes(f *facts, found func(where, what, fix string)) {
	for _, claim := range f.claims {
		if claim.Status.Phase == corev1.ClaimLost && api.ProvisionerOf(claim.Annotations) == api.DriverName {
			cause := pending.Explain(f.ofClaim(claim)).Causes[0]
			found("claim "+claim.Namespace+"/"+claim.Name, cause.Text, cause.Fix)
		}
	}
	former := formerCopies(f.answers)
	for _, pv := range f.volumes {
		node := pending.NodeOf(&pv)
		a := answerOf(f.answers, node)
		lost := func(where, what, fix string) {
			for _, on := range former[pv.Name] {
				fix += fmt.Sprintf("; or use the copy that it left on %s when it moved, with what was written before: docs/howto/move.md#the-former-copy", on)
			}
			found(where, what, fix)
		}
		if pv.Status.Phase != corev1.VolumeBound || pv.DeletionTimestamp != nil {
			continue
		}
		where := "claim " + claimOf(&pv)
		switch {
		case node == "":
			found(where, "the node affinity of its volume "+pv.Name+" does not name one node by "+api.TopologyKey+": a pod may start on a node without the volume",
				"set the reclaim policy Retain, delete claim and volume, and create them again with the manifests of nodelvm adopt (docs/howto/adopt.md)")
		case a == nil && f.isDeleted(node):
			lost(where, fmt.Sprintf("its volume %s is on %q, and the cluster has no such node: no pod can use the volume", pv.Name, node), "bring the node back; if it is lost, see docs/howto/lost-nodes.md")
		case a == nil:
			lost(where, fmt.Sprintf("no driver pod runs on %q, the node of its volume %s: no pod can use the volume", node, pv.Name),
				"bring the node back, or find out why the DaemonSet leaves it out (nodeSelector, affinity, tolerations); if the node is lost, see docs/howto/lost-nodes.md")
		case a.incomplete() == "" && a.volume(pv.Spec.CSI.VolumeHandle) == nil:
			if is := absenceOf(&pv, a); !is.reported && !hasConditionOf(a.page, pv.Spec.CSI.VolumeHandle) {
				lost(where, is.what, is.fix)
			}
		default:
			if is, renamed := renamedOf(&pv, a); renamed {
				found(where, is.what, is.fix)
			}
		}
	}
}

// hasConditionOf reports whether checkConditions has a finding about a volume.
func hasConditionOf(page report.Node, handle string) bool {
	return slices.ContainsFunc(page.Conditions, func(x report.Condition) bool { return x.Volume == handle })
}

// checkLostSnapshots checks whether the snapshots are on the nodes that their contents name. The snapshots of a node share a finding.
func checkLostSnapshots(f *facts, found func(where, what, fix string)) {
	gone, lost := map[string][]string{}, map[string][]string{} // by node
	for i := range f.contents {
		of := &f.contents[i]
		node, name := of.Labels[api.LabelManagedBy], cmp.Or(of.name(), of.Name)
		if node == "" || of.Status.SnapshotHandle == "" || of.DeletionTimestamp != nil { // checkSnapshots reports the first
			continue
		}
		a := answerOf(f.answers, node)
		switch {
		case a == nil:
			gone[node] = append(gone[node], name)
		case a.incomplete() == "" && !slices.ContainsFunc(a.page.Snapshots, func(sn report.Snapshot) bool { return sn.ID == of.Status.SnapshotHandle }):
			lost[node] = append(lost[node], name)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(gone)) {
		what, fix := "no driver pod runs on "+node+", which has ", "bring the node back, or find out why the DaemonSet leaves it out"
		if f.isDeleted(node) {
			what, fix = "the cluster has no node "+node+", which has ", "bring the node back"
		}
		found("snapshots of "+node, what+nameSome(gone[node])+": no volume can be restored from them", fix+"; if the node is lost, delete them (docs/howto/lost-nodes.md)")
	}
	for _, node := range slices.Sorted(maps.Keys(lost)) {
		found("snapshots of "+node, nameSome(lost[node])+" are not on the disks of "+node, "bring the disks back; if they are lost, delete these snapshots")
	}
}

// nameSome lists snapshots, the first nodesReported by name.
func nameSome(names []string) string {
	slices.Sort(names)
	if more := len(names) - nodesReported; more > 0 {
		return fmt.Sprintf("the snapshots %s and %d more", strings.Join(names[:nodesReported], ", "), more)
	}
	return "the snapshots " + strings.Join(names, ", ")
}
