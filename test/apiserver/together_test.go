//go:build e2e

package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/controller"
)

// TestSelectingClaimsReturn: claims with selectors, as Velero restores them, return to the scheduler from a node without capacity for all claims of
// their pod, and stay on one with it. The node has only the rights of its pod.
func TestSelectingClaimsReturn(t *testing.T) {
	here := newNode(t, "a") // its group has 10 GiB
	agent := here.agent(t, here.roundTrip)
	service := controller.New(controller.Config{
		NodeName: here.name, Volumes: here.host, Snapshots: here.host, Cluster: agent, CheckFileSystem: func(string, string) error { return nil },
	})
	agent.PlaceTogether(service.FitTogether)
	inBackground(t, agent.Run)
	selecting := func(size string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"velero.io/dynamic-pv-restore": c.Name}}
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
		}
	}
	choose := func(claims ...*corev1.PersistentVolumeClaim) { // as kube-scheduler does
		for _, claim := range claims {
			soon(t, "the agent knows claim "+claim.Name, func() bool { return agent.Waiting(claim.Namespace, claim.Name, string(claim.UID)) })
			patch := `{"metadata":{"annotations":{"` + selected + `":"` + here.name + `"}}}`
			_, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			must(t, err)
		}
	}
	large := []*corev1.PersistentVolumeClaim{newClaim(t, "data", selecting("6Gi")), newClaim(t, "log", selecting("5Gi"))}
	small := []*corev1.PersistentVolumeClaim{newClaim(t, "small-data", selecting("2Gi")), newClaim(t, "small-log", selecting("1Gi"))}
	podUsing(t, "web", "data", "log")
	podUsing(t, "small", "small-data", "small-log")
	choose(small...)
	choose(large...)
	for _, claim := range large {
		until(t, claim, "returned", selectedIs(""))
		if said := eventOn(t, claim.Namespace, claim.Name, "SelectedNodeRemoved"); !strings.Contains(said, "data and log together, which pod web needs") {
			t.Errorf("the event says %q", said)
		}
	}
	for _, claim := range small {
		until(t, claim, "kept", selectedIs(here.name))
	}
}
