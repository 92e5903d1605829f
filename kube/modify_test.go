package kube

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

type noLimits struct{}

func (noLimits) SetLimits(context.Context, lvm.ID, string, lvm.Limits) (lvm.Volume, error) {
	return lvm.Volume{}, nil
}

// TestClaimsThatAskForAttributes: an agent with limits keeps such a claim, and has a job for its attributes apart from that for its size. One
// without limits does not.
func TestClaimsThatAskForAttributes(t *testing.T) {
	_, client := newAPI(t)
	gold := "gold"
	plain := kubetest.Claim("data", "late", "pvc-data")
	plain.Annotations = map[string]string{api.AnnotationSelectedNode: "node-1"}
	plain.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	asking, both, elsewhere := plain.DeepCopy(), plain.DeepCopy(), plain.DeepCopy()
	asking.Spec.VolumeAttributesClassName, both.Spec.VolumeAttributesClassName, elsewhere.Spec.VolumeAttributesClassName = &gold, &gold, &gold
	both.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	elsewhere.Annotations[api.AnnotationSelectedNode] = "node-2"
	for _, test := range []struct {
		name       string
		claim      *corev1.PersistentVolumeClaim
		limits     bool
		kept       bool
		size       bool // there is a job for it
		attributes bool // the same
	}{
		{"no class", plain, true, false, false, false},
		{"a class", asking, true, true, false, true},
		{"a class, without limits", asking, false, false, false, false},
		{"a class and a larger size", both, true, true, true, true},
		{"a class and a larger size, without limits", both, false, true, true, false},
		{"a class, on another node", elsewhere, true, true, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := Config{Client: client, Node: "node-1"}
			if test.limits {
				cfg.Limits = noLimits{}
			}
			agent := NewAgent(cfg)
			must(t, agent.claims.Add(stripClaim(test.claim)))
			if _, kept := agent.claims.waiting("ns/data"); kept != test.kept {
				t.Errorf("kept: %v", kept)
			}
			before := agent.queue.Len()
			_, size := agent.jobForClaim(t.Context(), "ns/data")
			attributes := agent.queue.Len() > before
			if size != test.size || attributes != test.attributes {
				t.Errorf("a job for the size: %v, for the attributes: %v", size, attributes)
			}
			work, ok := agent.jobForAttributes(kubeclient.ObjectKey{Kind: kindAttributes, Key: "ns/data"})
			if test.attributes && (!ok || !strings.HasPrefix(work.id, string(test.claim.UID)) || !strings.HasSuffix(work.id, "/gold")) {
				t.Errorf("job %q, %v", work.id, ok)
			}
		})
	}
}
