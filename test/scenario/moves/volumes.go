package moves

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// isOn fails unless a claim's volume is on a node, bound, and as before a move.
func isOn(ctx context.Context, env *scenario.Environment, claim, node string) error {
	bound, err := env.BoundTo(ctx, claim)
	if err != nil {
		return err
	}
	v := bound.Volume
	if bound.Node != node || v.Status.Phase != corev1.VolumeBound || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		len(v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions) != 1 {
		return fmt.Errorf("the PersistentVolume of %s is on %s: %+v", claim, bound.Node, v)
	}
	for _, key := range []string{api.AnnotationMoveRecord, api.AnnotationMovingTo, api.AnnotationMoveOffer, api.AnnotationMoveAnswer, api.AnnotationHandedOver} {
		if v.Annotations[key] != "" {
			return fmt.Errorf("the PersistentVolume of %s has the annotation %s: %s", claim, key, v.Annotations[key])
		}
	}
	for _, finalizer := range v.Finalizers {
		if !slices.Contains([]string{"kubernetes.io/pv-protection", api.FinalizerProvisioner}, finalizer) {
			return fmt.Errorf("the PersistentVolume of %s has the finalizer %s", claim, finalizer)
		}
	}
	return nil
}

// stateOf returns the state in a logical volume's tags.
func stateOf(v cluster.LogicalVolume) string {
	for tag := range strings.SplitSeq(v.Tags, ",") {
		if state, is := strings.CutPrefix(tag, "nodelvm.state="); is {
			return state
		}
	}
	return ""
}

// formerCopies counts the logical volumes on a node whose data moved away.
func formerCopies(ctx context.Context, env *scenario.Environment, node string) (count int, err error) {
	rows, err := env.LogicalVolumes(ctx, node)
	for _, row := range rows {
		if stateOf(row) == "moved" {
			count++
		}
	}
	return count, err
}

// onlyPoolsOn fails if a node has a logical volume besides thin pools.
func onlyPoolsOn(ctx context.Context, env *scenario.Environment, node string) error {
	rows, err := env.LogicalVolumes(ctx, node)
	for _, row := range rows {
		if !row.IsPool() {
			err = errors.Join(err, fmt.Errorf("%s still has %+v", node, row))
		}
	}
	return err
}
