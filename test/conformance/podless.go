package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// podless is the part of the suite whose specs are about the claims of several pods, but start none. A claim of a class with WaitForFirstConsumer
// stays unbound without a pod, and Kubernetes refuses another VolumeAttributesClass for an unbound claim. Its namespaces have this name too.
const podless = "volume-modify-stress"

const selectedNode = "volume.kubernetes.io/selected-node"

// selectNodes selects a node for each claim of the podless specs, as the scheduler does for a pod, until end is called.
func selectNodes(ctx context.Context, opt Options) (end func() error, err error) {
	c, err := cluster.New(opt.Lab, cluster.NewReporter(opt.Out))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- selectAll(ctx, c) }()
	return func() error {
		cancel()
		return <-ended
	}, nil
}

func selectAll(ctx context.Context, c *cluster.Cluster) error {
	for {
		if err := selectOnce(ctx, c); err != nil && ctx.Err() == nil {
			return fmt.Errorf("select a node for the claims of the specs without pods: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// selectOnce selects a node for each claim that waits for one.
func selectOnce(ctx context.Context, c *cluster.Cluster) error {
	claims, err := c.Client.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes := c.Lab.NodeNames()
	for i, claim := range withoutNode(claims.Items) {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, selectedNode, nodes[i%len(nodes)])
		_, err := c.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // a spec may have deleted it
			return err
		}
	}
	return nil
}

// withoutNode returns the claims of podless specs that wait for a node.
func withoutNode(claims []corev1.PersistentVolumeClaim) (waiting []corev1.PersistentVolumeClaim) {
	for _, claim := range claims {
		if strings.HasPrefix(claim.Namespace, podless+"-") && claim.Status.Phase == corev1.ClaimPending && claim.DeletionTimestamp == nil && claim.Annotations[selectedNode] == "" {
			waiting = append(waiting, claim)
		}
	}
	return waiting
}
