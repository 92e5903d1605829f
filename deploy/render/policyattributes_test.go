package main

import (
	"testing"

	core "k8s.io/api/core/v1"
)

// withClass gives a volume an attributes class.
func withClass(class string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.VolumeAttributesClassName = &class
	return pv
}

// naming makes a claim name an attributes class.
func naming(class string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Spec.VolumeAttributesClassName = &class
	return pvc
}

// modifying notes a change of a claim's volume to an attributes class.
func modifying(state core.PersistentVolumeClaimModifyVolumeStatus, target string, pvc *core.PersistentVolumeClaim) *core.PersistentVolumeClaim {
	pvc.Status.ModifyVolumeStatus = &core.ModifyVolumeStatus{Status: state, TargetVolumeAttributesClassName: target}
	return failing(core.PersistentVolumeClaimVolumeModifyingVolume, pvc)
}

// TestAttributes: with ioLimits.enabled a node records its own volumes' attributes classes, if their claims ask for them. Without, it
// records none.
func TestAttributes(t *testing.T) {
	const progress, pending, infeasible = core.PersistentVolumeClaimModifyVolumeInProgress, core.PersistentVolumeClaimModifyVolumePending, core.PersistentVolumeClaimModifyVolumeInfeasible
	fast := func(node string) *core.PersistentVolumeClaim { return naming("fast", bound(node)) }
	wanted := []request{
		{name: "create its volume with a class", now: withClass("fast", volume("node-1"))},
		{name: "give its volume a class", before: volume("node-1"), now: withClass("fast", volume("node-1"))},
		{name: "give its volume another class", before: withClass("slow", volume("node-1")), now: withClass("fast", volume("node-1"))},
		{name: "begin a change", sub: "status", before: fast("node-1"), now: modifying(progress, "fast", fast("node-1"))},
		{name: "wait for the class", sub: "status", before: fast("node-1"), now: modifying(pending, "", fast("node-1"))},
		{name: "give up", sub: "status", before: modifying(progress, "fast", fast("node-1")), now: modifying(infeasible, "fast", fast("node-1"))},
		{name: "end a change", sub: "status", before: modifying(progress, "fast", fast("node-1")), now: modified(fast("node-1"))},
		{name: "end a change after the claim names another class", sub: "status", before: modifying(progress, "fast", naming("slow", bound("node-1"))), now: modified(naming("slow", bound("node-1")))},
		{name: "begin a change of a claim that was bound by hand", sub: "status", before: fast(""), now: modifying(progress, "fast", fast(""))},
	}
	refused := []request{
		{name: "create another node's volume with a class", now: withClass("fast", volume("node-2")), refused: mayOnly},
		{name: "give another node's volume a class", before: volume("node-2"), now: withClass("fast", volume("node-2")), refused: mayOnly},
		{name: "take its volume's class away", before: withClass("slow", volume("node-1")), now: volume("node-1"), refused: mayOnly},
		{name: "give its volume a class, and retain it", before: volume("node-1"), now: withClass("fast", retained("node-1")), refused: mayOnly},
		{name: "begin a change of another node's claim", sub: "status", before: fast("node-2"), now: modifying(progress, "fast", fast("node-2")), refused: mayOnly},
		{name: "end a change of another node's claim", sub: "status", before: modifying(progress, "fast", fast("node-2")), now: modified(fast("node-2")), refused: mayOnly},
		{name: "begin a change that the claim does not ask for", sub: "status", before: fast("node-1"), now: modifying(progress, "slow", fast("node-1")), refused: mayOnly},
		{name: "note a class that the claim does not ask for", sub: "status", before: bound("node-1"), now: modified(bound("node-1")), refused: mayOnly},
		{name: "take the class of the claim away", sub: "status", before: modified(fast("node-1")), now: fast("node-1"), refused: mayOnly},
		{name: "name a class in its claim", before: bound("node-1"), now: fast("node-1"), refused: mayOnly},
	}
	on := compile(t, policyIn(t, renderWith(t, map[string]any{"ioLimits": map[string]any{"enabled": true}}), "nodelvm-node-restriction"))
	off := compile(t, shippedPolicy(t, "nodelvm-node-restriction"))
	for _, r := range append(wanted, refused...) {
		t.Run(r.name, func(t *testing.T) {
			expectDenied(t, denials(t, on, attributesOf(t, r), nil), r.refused)
			expectDenied(t, denials(t, off, attributesOf(t, r), nil), mayOnly)
		})
	}
}

// TestCgroupsOfNode: the pod sees the node's cgroups only with ioLimits.enabled, and knows its own among them.
func TestCgroupsOfNode(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		set := daemonSet(t, renderWith(t, map[string]any{"ioLimits": map[string]any{"enabled": enabled}}))
		var paths, mounts, args, uids int
		for _, v := range set.Spec.Template.Spec.Volumes {
			if v.HostPath != nil && v.HostPath.Path == "/sys/fs/cgroup" {
				paths++
			}
		}
		for _, c := range set.Spec.Template.Spec.Containers {
			for _, m := range c.VolumeMounts {
				if m.MountPath == "/sys/fs/cgroup" && c.Name == "nodelvm" && !m.ReadOnly {
					mounts++
				}
			}
			for _, a := range c.Args {
				if a == "--io-limits=/sys/fs/cgroup" {
					args++
				}
			}
			for _, e := range c.Env {
				if e.Name == "POD_UID" && e.ValueFrom.FieldRef.FieldPath == "metadata.uid" {
					uids++
				}
			}
		}
		want := map[bool]int{true: 1}[enabled]
		if paths != want || mounts != want || args != want || uids != want {
			t.Errorf("ioLimits.enabled %v: %d host paths, %d mounts, %d arguments, %d UIDs", enabled, paths, mounts, args, uids)
		}
	}
}
