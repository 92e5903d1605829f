//go:build e2e

package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSchedulerKeepsRunning: no tenant's claim of a class of the driver ends the scheduler, for which two nodes have capacity. Version 1.37 panics on a
// class in the old annotation alone, which the chart's policy therefore refuses. A claim with both gets a node.
func TestSchedulerKeepsRunning(t *testing.T) {
	startControllers(t, t.TempDir())
	const class, old = "scored", "volume.beta.kubernetes.io/storage-class"
	newClass(t, class, map[string]string{"volumeGroup": "vg"})
	for _, node := range []string{"scored-a", "scored-b"} {
		makeNode(t, node, map[string]string{topology: node})
		publishCapacity(t, node, class, "10Gi")
	}
	annotated := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "annotated", Annotations: map[string]string{old: class}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}},
	}
	soon(t, "the API server's policy knows the class", func() bool {
		_, err := admin.CoreV1().PersistentVolumeClaims(namespace(t)).Create(t.Context(), annotated, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsInvalid(err)
	})
	for _, name := range []string{"both", "field"} {
		newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
			field := class
			c.Spec.StorageClassName = &field
			if name == "both" {
				c.Annotations[old] = class
			}
		})
		create(t, admin.CoreV1().Pods(namespace(t)), podWithClaim(name))
		soon(t, "a node is selected for "+name, func() bool { return selectedNode(t, name) != "" })
	}
}
