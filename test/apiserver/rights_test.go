//go:build e2e

package apiserver

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestNodeTokenCannotWriteForOtherNodes tries with one node's token what only another's may do: the API server itself refuses.
func TestNodeTokenCannotWriteForOtherNodes(t *testing.T) {
	here, thief := newNode(t, "a"), newNode(t, "b")
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	plain := newClaim(t, "plain", func(*corev1.PersistentVolumeClaim) {})
	stolen, err := kubernetes.NewForConfig(thief.restConfig())
	if err != nil {
		t.Fatal(err)
	}
	claims := stolen.CoreV1().PersistentVolumeClaims(claim.Namespace)
	patch := func(name, body string, subresource ...string) error {
		_, err := claims.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresource...)
		return err
	}
	for what, err := range map[string]error{
		"note an expansion": patch(claim.Name, `{"status": {"allocatedResources": {"storage": "9Gi"}}}`, "status"),
		"move a claim":      patch(claim.Name, `{"metadata": {"annotations": {"`+selected+`": "`+thief.name+`"}}}`),
		"take a claim":      patch(plain.Name, `{"metadata": {"annotations": {"`+selected+`": "`+thief.name+`"}}}`),
		"give a volume another size": func() error {
			_, err := stolen.CoreV1().PersistentVolumes().Patch(t.Context(), claim.Spec.VolumeName, types.MergePatchType,
				[]byte(`{"spec": {"capacity": {"storage": "9Gi"}}}`), metav1.PatchOptions{})
			return err
		}(),
		"remove a volume": stolen.CoreV1().PersistentVolumes().Delete(t.Context(), claim.Spec.VolumeName, metav1.DeleteOptions{}),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "nodelvm-node-restriction") {
			t.Errorf("%s: %v; want the policy's refusal", what, err)
		}
	}
}

// TestConditionsBecomeEvents: on the claim of the volume that is concerned, or on the node.
func TestConditionsBecomeEvents(t *testing.T) {
	here := newNode(t, "a")
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	finding := lvm.Condition{Type: lvm.ConditionThinPoolFull, Group: "vg", Text: "the pool is full",
		Volume: lvm.Volume{UUID: "u", Name: claim.Spec.VolumeName, Claim: claim.Namespace + "/" + claim.Name}}
	group := lvm.Condition{Type: lvm.ConditionDiskUnresponsive, Group: "vg", Text: "a disk does not answer"}
	here.start(t, func(context.Context) ([]lvm.Condition, error) { return []lvm.Condition{finding, group}, nil })
	if text := eventOn(t, claim.Namespace, claim.Name, "ThinPoolFull"); text != finding.Text {
		t.Errorf("the event says %q", text)
	}
	if text := eventOn(t, "default", here.name, "DiskUnresponsive"); text != group.Text {
		t.Errorf("the node is told %q", text)
	}
}
