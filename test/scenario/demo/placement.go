package demo

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func (s *state) topologyAndCapacity() scenario.Scenario {
	return scenario.Scenario{Title: "Each node publishes its topology and capacity", Steps: []scenario.Step{
		{Says: "storage classes are created", Prove: scenario.Apply("classes.yaml")},
		{Says: "each node's CSINode lists " + cluster.Driver + " with the topology key " + cluster.TopologyKey, Prove: everyNodeRegistered},
		{Says: "each node's CSIStorageCapacity equals the free extents that vgs shows there", Prove: s.capacityAgrees},
	}}
}

func everyNodeRegistered(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		for _, name := range env.Lab.NodeNames() {
			node, err := env.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			found := false
			for _, d := range node.Spec.Drivers {
				found = found || d.Name == cluster.Driver && d.NodeID == name && slices.Contains(d.TopologyKeys, cluster.TopologyKey)
			}
			if !found {
				return fmt.Errorf("CSINode %s lists %v", name, node.Spec.Drivers)
			}
		}
		return nil
	})
}

// capacityAgrees also keeps each node's figures of the first time it is asked.
func (s *state) capacityAgrees(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		err := cluster.Eventually(ctx, func() error {
			free, err := env.CheckCapacityIsFree(ctx, scenario.FastClass, node)
			if _, seen := s.freeAtFirst[node]; err == nil && !seen {
				s.freeAtFirst[node] = free
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func delayedBinding() scenario.Scenario {
	return scenario.Scenario{Title: "A volume is created on its pod's node, after the scheduler has chosen it", Steps: []scenario.Step{
		{Says: "a claim without a pod stays Pending, and no node has a volume for it", Prove: claimWaits},
		{Says: "a StatefulSet of three PostgreSQL servers is created", Prove: scenario.Apply("postgres.yaml")},
		{Says: "all three become Ready, each on the node of its own volume", Prove: postgresPlaced},
		{Says: "there is no VolumeAttachment: a local disk need not be attached", Prove: noAttachments},
	}}
}

func claimWaits(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("waiting.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.WaitEvent(ctx, "alone", "waiting for first consumer"); err != nil {
		return err
	}
	pvc, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Get(ctx, "alone", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pvc.Status.Phase != corev1.ClaimPending {
		return fmt.Errorf("the claim is %s", pvc.Status.Phase)
	}
	return env.CheckNoVolumes(ctx)
}

func postgresPlaced(ctx context.Context, env *scenario.Environment) error {
	for i := range 3 {
		name := fmt.Sprintf("pg-%d", i)
		pod, err := env.WaitPodReady(ctx, name)
		if err != nil {
			return err
		}
		v, err := env.VolumeOf(ctx, "data-"+name)
		if err != nil {
			return err
		}
		if v.Node != pod.Spec.NodeName {
			return fmt.Errorf("%s runs on %s, its volume is on %s", name, pod.Spec.NodeName, v.Node)
		}
	}
	return nil
}

func noAttachments(ctx context.Context, env *scenario.Environment) error {
	list, err := env.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("there are %d", len(list.Items))
	}
	return nil
}

func placement() scenario.Scenario {
	return scenario.Scenario{Title: "A claim gets a volume where there is capacity, or an event says why not", Steps: []scenario.Step{
		{Says: "a claim of 13 GiB and one of 500 GiB are created, and one of an Immediate class", Prove: scenario.Apply("placement.yaml")},
		{Says: "only " + scenario.BigNode + " has 13 GiB free, and the pod runs there", Prove: largeLands},
		{Says: "no node has 500 GiB: the claim stays Pending, and an event says why", Prove: impossibleWaits},
		{Says: "an event on the claim of the Immediate class asks for WaitForFirstConsumer", Prove: immediateGetsEvent},
	}}
}

func largeLands(ctx context.Context, env *scenario.Environment) error {
	pod, err := env.WaitPodReady(ctx, "large")
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != scenario.BigNode {
		return fmt.Errorf("it runs on %s", pod.Spec.NodeName)
	}
	_, err = env.VolumeOf(ctx, "large")
	return err
}

func impossibleWaits(ctx context.Context, env *scenario.Environment) error {
	if err := env.WaitEvent(ctx, "impossible", "did not have enough free storage"); err != nil {
		return err
	}
	pvc, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Get(ctx, "impossible", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pvc.Status.Phase != corev1.ClaimPending {
		return fmt.Errorf("the claim is %s", pvc.Status.Phase)
	}
	return nil
}

func immediateGetsEvent(ctx context.Context, env *scenario.Environment) error {
	return env.WaitEvent(ctx, "too-early", "WaitForFirstConsumer")
}
