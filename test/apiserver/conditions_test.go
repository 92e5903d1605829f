//go:build e2e

package apiserver

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestConditionsBecomeEvents: on the claim of the volume that is concerned, or on the node.
func TestConditionsBecomeEvents(t *testing.T) {
	here := newNode(t, "a")
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	full := lvm.Condition{Type: lvm.ConditionThinPoolFull, Group: "vg", Text: "the pool is full",
		Volume: lvm.Volume{UUID: "u", Name: claim.Spec.VolumeName, Claim: claim.Namespace + "/" + claim.Name}}
	disk := lvm.Condition{Type: lvm.ConditionDiskUnresponsive, Group: "vg", Text: "a disk does not answer"}
	here.start(t, func(c *kube.Config) {
		c.Health = func(context.Context) ([]lvm.Condition, error) { return []lvm.Condition{full, disk}, nil }
	})
	if text := eventOn(t, claim.Namespace, claim.Name, "ThinPoolFull"); text != full.Text {
		t.Errorf("the claim's event says %q", text)
	}
	if text := eventOn(t, "default", here.name, "DiskUnresponsive"); text != disk.Text {
		t.Errorf("the node's event says %q", text)
	}
}
