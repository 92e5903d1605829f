package capacity

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// PodsWithSeveralClaims returns a scenario: a pod's volumes are made on one node, or none of them is made. It needs nothing of the
// others, and leaves nothing.
func PodsWithSeveralClaims() []scenario.Scenario {
	return []scenario.Scenario{twoClaims(), nowhereRoom(), claimAndEphemeral()}
}

func twoClaims() scenario.Scenario {
	pod := podWanted{name: "pair", prefers: "node-1", volumes: []volumeWanted{{name: "a", mib: 200}, {name: "b", mib: 200}}}
	return scenario.Scenario{Title: "Two claims of a pod get volumes on a node with capacity for both", Steps: []scenario.Step{
		{Says: "an admin leaves 300 MiB on node-1, 600 MiB on node-2, nothing on node-3", Prove: leave(300, 600, 0)},
		{Says: "a pod with two claims of 200 MiB that prefers node-1 runs on node-2 within a minute", Limit: time.Minute,
			Prove: func(ctx context.Context, env *scenario.Environment) error {
				if err := pod.create(ctx, env); err != nil {
					return err
				}
				return pod.runsWhole(ctx, env, "node-2")
			}},
		{Says: "node-1 was tried first, refused both, and holds nothing of it", Prove: func(ctx context.Context, env *scenario.Environment) error {
			for _, v := range pod.volumes {
				if err := triedOn(ctx, env, pod.claim(v), "node-1"); err != nil {
					return err
				}
			}
			return bare(ctx, env, "node-1", "node-3")
		}},
		{Says: "its volumes are deleted with it, and node-1 publishes 300 MiB again", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := endTogether(ctx, env); err != nil {
				return err
			}
			return cluster.Eventually(ctx, func() error { return errors.Join(offers(ctx, env, "node-1", 300), offers(ctx, env, "node-2", 600)) })
		}},
	}}
}

func nowhereRoom() scenario.Scenario {
	pod := podWanted{name: "couple", prefers: "node-1", volumes: []volumeWanted{{name: "a", mib: 200}, {name: "b", mib: 200}}}
	return scenario.Scenario{Title: "Two claims wait while no node has capacity for both, and no volume remains", Steps: []scenario.Step{
		{Says: "an admin leaves 300 MiB on node-1 and node-2, nothing on node-3", Prove: leave(300, 300, 0)},
		{Says: "the scheduler tries both nodes for a pod with two claims of 200 MiB; it stays Pending, and no node has a volume of it", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := pod.create(ctx, env); err != nil {
				return err
			}
			for _, node := range []string{"node-1", "node-2"} {
				if err := triedOn(ctx, env, "couple-a", node); err != nil {
					return err
				}
			}
			return errors.Join(staysBare(ctx, env, 5*time.Second), pending(ctx, env, pod.name))
		}},
		{Says: "an admin frees extents on node-2: the pod runs there without help", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := dropFiller(ctx, env, "node-2"); err != nil {
				return err
			}
			return errors.Join(pod.runsWhole(ctx, env, "node-2"), bare(ctx, env, "node-1", "node-3"))
		}},
		{Says: "it is deleted", Prove: endTogether},
	}}
}

func claimAndEphemeral() scenario.Scenario {
	pod := podWanted{name: "mixed", prefers: "node-1", volumes: []volumeWanted{{name: "data", mib: 200}, {name: "cache", mib: 200, ephemeral: true}}}
	return scenario.Scenario{Title: "A claim and a generic ephemeral volume of a pod get volumes on one node", Steps: []scenario.Step{
		{Says: "an admin leaves 300 MiB on node-1, 600 MiB on node-2, nothing on node-3", Prove: leave(300, 600, 0)},
		{Says: "a pod with 200 MiB of each that prefers node-1 runs on node-2", Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := pod.create(ctx, env); err != nil {
				return err
			}
			return errors.Join(pod.runsWhole(ctx, env, "node-2"), bare(ctx, env, "node-1", "node-3"))
		}},
		{Says: "it is deleted, and the admin frees all extents", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return errors.Join(endTogether(ctx, env), dropFillers(ctx, env))
		}},
	}}
}

func pending(ctx context.Context, env *scenario.Environment, name string) error {
	pod, err := env.Client.CoreV1().Pods(cluster.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil && (pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "") {
		err = fmt.Errorf("pod %s is %s on %q", name, pod.Status.Phase, pod.Spec.NodeName)
	}
	return err
}
