package moves

import (
	"context"
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

// oneIsAuthoritative fails unless each claim's volume is ready on at most one node, and one of its logical volumes is the claim's: one that is not incomplete
// and not handed over. The source's tags are read first: its volume is handed over before that of the target becomes ready.
func oneIsAuthoritative(ctx context.Context, env *scenario.Environment, source string, claims []string) error {
	nodes := slices.DeleteFunc(env.Lab.NodeNames(), func(node string) bool { return node == source })
	states := map[string][]string{} // of the logical volumes, by their names, which are those of the PersistentVolumes
	for _, node := range append([]string{source}, nodes...) {
		rows, err := env.LogicalVolumes(ctx, node)
		if err != nil {
			return err
		}
		for _, row := range rows {
			states[row.Name] = append(states[row.Name], stateOf(row))
		}
	}
	for _, claim := range claims {
		c, err := env.Claim(ctx, claim)
		if err != nil {
			return err
		}
		ready, own := 0, 0
		for _, state := range states[c.Spec.VolumeName] {
			if state == "ready" {
				ready++
			}
			if state != "moved" && state != "receiving" {
				own++
			}
		}
		if ready > 1 || own == 0 {
			return fmt.Errorf("the logical volumes of claim %s are %q", claim, states[c.Spec.VolumeName])
		}
	}
	return nil
}
