package moves

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// object is what a PersistentVolume says about where the data is.
type object struct {
	uid    types.UID // none: there is no PersistentVolume
	node   string
	parked bool // no pod can start with it
	handed string
}

// oneIsAuthoritative fails unless exactly one logical volume of each claim is the claim's, by the tags of all and its PersistentVolume. The source is a
// node from which volumes move.
func oneIsAuthoritative(ctx context.Context, env *scenario.Environment, source string, claims []string) error {
	for {
		before, err := objectsOf(ctx, env, claims)
		if err != nil {
			return err
		}
		states, err := statesOn(ctx, env, source)
		if err != nil {
			return err
		}
		after, err := objectsOf(ctx, env, claims)
		if err != nil {
			return err
		}
		if !maps.Equal(before, after) { // the moves went on between the looks
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(after)) {
			if err := judge(source, states[name], after[name]); err != nil {
				return fmt.Errorf("PersistentVolume %s: %w", name, err)
			}
		}
		return nil
	}
}

// objectsOf returns the PersistentVolumes of claims, by name.
func objectsOf(ctx context.Context, env *scenario.Environment, claims []string) (map[string]object, error) {
	objects := map[string]object{}
	for _, claim := range claims {
		c, err := env.Claim(ctx, claim)
		if err != nil {
			return nil, err
		}
		name := c.Spec.VolumeName
		v, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			objects[name] = object{}
			continue
		}
		if err != nil {
			return nil, err
		}
		if objects[name], err = objectOf(v); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func objectOf(v *corev1.PersistentVolume) (object, error) {
	node, err := cluster.AffinityNode(v)
	if err != nil {
		return object{}, err
	}
	parked := len(v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions) > 1
	return object{uid: v.UID, node: node, parked: parked, handed: v.Annotations[api.AnnotationHandedOver]}, nil
}

// statesOn returns the states of the logical volumes by name, which is that of the PersistentVolume, and node. Those on the source are read first: a volume
// is handed over there before the target's becomes ready.
func statesOn(ctx context.Context, env *scenario.Environment, source string) (map[string]map[string]string, error) {
	nodes := slices.DeleteFunc(env.Lab.NodeNames(), func(node string) bool { return node == source })
	states := map[string]map[string]string{}
	for _, node := range append([]string{source}, nodes...) {
		rows, err := env.LogicalVolumes(ctx, node)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if states[row.Name] == nil {
				states[row.Name] = map[string]string{}
			}
			states[row.Name][node] = stateOf(row)
		}
	}
	return states, nil
}

// judge fails unless exactly one of a claim's logical volumes has its data. states are by node. The source's has them until it is handed over; then it is that of
// another node, which has them completely. Pods start with that one alone: the PersistentVolume is on its node, or no pod can use it.
func judge(source string, states map[string]string, pv object) error {
	var complete []string // nodes
	for node, state := range states {
		if node != source && (state == "ready" || state == "received") {
			complete = append(complete, node)
		}
	}
	wrong := func(what string) error {
		return fmt.Errorf("%s: the logical volumes are %v, the object is %+v", what, states, pv)
	}
	own := states[source]
	if own == "deleting" { // on request, after the move; a linear one is wiped first
		own = none
	}
	switch own {
	case "ready", "moving":
		if slices.ContainsFunc(complete, func(node string) bool { return states[node] == "ready" }) {
			return wrong("two logical volumes are the claim's")
		}
		if pv.uid != none && pv.node != source {
			return wrong("pods go to another node than the data")
		}
		return nil
	case "moved", none:
		if len(complete) != 1 {
			return wrong("not one logical volume is the claim's")
		}
		node := complete[0]
		switch {
		case pv.uid == none && own == none:
			return wrong("the source's logical volume went before the target's object came")
		case pv.uid == none || own == "moved" && pv.node == source && pv.parked:
			return nil // the target's object follows
		case pv.node != node || states[node] != "ready":
			return wrong("pods start with another volume than the data's")
		}
		return nil
	default:
		return wrong("the source's logical volume is in no state of a move")
	}
}
