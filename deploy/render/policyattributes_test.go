package main

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// modifying notes a change of a claim's volume to an attributes class.
func modifying(state core.PersistentVolumeClaimModifyVolumeStatus, target string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.ModifyVolumeStatus = &core.ModifyVolumeStatus{Status: state, TargetVolumeAttributesClassName: target}
	return failing(core.PersistentVolumeClaimVolumeModifyingVolume, pvc)
}

// TestAttributes: with ioLimits.enabled a node records its own volumes' attributes classes, if their claims ask for them. Without, it
// records none.
func TestAttributes(t *testing.T) {
	const progress, pending, infeasible = core.PersistentVolumeClaimModifyVolumeInProgress, core.PersistentVolumeClaimModifyVolumePending, core.PersistentVolumeClaimModifyVolumeInfeasible
	fast := func(node string) *core.PersistentVolumeClaim { return inClass("fast", bound(node)) }
	wanted := []request{
		{name: "create its volume with a class", now: ofAttributes("fast", volume("node-1"))},
		{name: "give its volume a class", before: volume("node-1"), now: ofAttributes("fast", volume("node-1"))},
		{name: "give its volume another class", before: ofAttributes("slow", volume("node-1")), now: ofAttributes("fast", volume("node-1"))},
		{name: "begin a change", sub: "status", before: fast("node-1"), now: modifying(progress, "fast", fast("node-1"))},
		{name: "wait for the class", sub: "status", before: fast("node-1"), now: modifying(pending, "", fast("node-1"))},
		{name: "give up", sub: "status", before: modifying(progress, "fast", fast("node-1")), now: modifying(infeasible, "fast", fast("node-1"))},
		{name: "end a change", sub: "status", before: modifying(progress, "fast", fast("node-1")), now: modified(fast("node-1"))},
		{name: "end a change after the claim names another class", sub: "status", before: modifying(progress, "fast", inClass("slow", bound("node-1"))), now: modified(inClass("slow", bound("node-1")))},
		{name: "begin a change of a claim that was bound by hand", sub: "status", before: fast(""), now: modifying(progress, "fast", fast(""))},
	}
	refused := []request{
		{name: "create another node's volume with a class", now: ofAttributes("fast", volume("node-2")), refused: mayOnly},
		{name: "give another node's volume a class", before: volume("node-2"), now: ofAttributes("fast", volume("node-2")), refused: mayOnly},
		{name: "take its volume's class away", before: ofAttributes("slow", volume("node-1")), now: volume("node-1"), refused: mayOnly},
		{name: "give its volume a class, and retain it", before: volume("node-1"), now: ofAttributes("fast", retained("node-1")), refused: mayOnly},
		{name: "begin a change of another node's claim", sub: "status", before: fast("node-2"), now: modifying(progress, "fast", fast("node-2")), refused: mayOnly},
		{name: "end a change of another node's claim", sub: "status", before: modifying(progress, "fast", fast("node-2")), now: modified(fast("node-2")), refused: mayOnly},
		{name: "begin a change that the claim does not ask for", sub: "status", before: fast("node-1"), now: modifying(progress, "slow", fast("node-1")), refused: mayOnly},
		{name: "note a class that the claim does not ask for", sub: "status", before: bound("node-1"), now: modified(bound("node-1")), refused: mayOnly},
		{name: "take the class of the claim away", sub: "status", before: modified(fast("node-1")), now: fast("node-1"), refused: mayOnly},
		{name: "name a class in its claim", before: bound("node-1"), now: fast("node-1"), refused: mayOnly},
	}
	expectAnswers(t, policyIn(t, renderWith(t, map[string]any{"ioLimits": map[string]any{"enabled": true}}), "nodelvm-node-restriction"), wanted, refused)
	for i := range wanted {
		wanted[i].refused = mayOnly
	}
	t.Run("off", func(t *testing.T) { expectAnswers(t, shippedPolicy(t, "nodelvm-node-restriction"), wanted, refused) })
}
