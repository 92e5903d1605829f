package scenario

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	fastClass = "fast"
	bigNode   = "node-3" // the lab gives it the largest disks
)

func topologyAndCapacity() Act {
	return Act{Title: "Every node says what it has", Steps: []Step{
		{Says: "storage classes are created", Prove: apply("classes.yaml")},
		{Says: "each node's CSINode lists " + Driver + " with the topology key " + TopologyKey, Prove: everyNodeRegistered},
		{Says: "each node's CSIStorageCapacity equals the free extents that vgs shows there", Prove: capacityAgrees},
	}}
}

func everyNodeRegistered(ctx context.Context, s *Stage) error {
	return eventually(ctx, func() error {
		for _, name := range s.Lab.NodeNames() {
			node, err := s.Client.StorageV1().CSINodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			found := false
			for _, d := range node.Spec.Drivers {
				found = found || d.Name == Driver && d.NodeID == name && slices.Contains(d.TopologyKeys, TopologyKey)
			}
			if !found {
				return fmt.Errorf("CSINode %s lists %v", name, node.Spec.Drivers)
			}
		}
		return nil
	})
}

// capacityAgrees also keeps each node's figures of the first time it is asked.
func capacityAgrees(ctx context.Context, s *Stage) error {
	for _, node := range s.Lab.NodeNames() {
		err := eventually(ctx, func() error {
			free, err := s.capacityIsFree(ctx, node)
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

func delayedBinding() Act {
	return Act{Title: "A volume is made where its pod goes, and not before", Steps: []Step{
		{Says: "a claim without a pod stays Pending, and no node has a volume for it", Prove: claimWaits},
		{Says: "a StatefulSet of three PostgreSQL servers is created", Prove: apply("postgres.yaml")},
		{Says: "all three become Ready, each on the node of its own volume", Prove: postgresPlaced},
		{Says: "there is no VolumeAttachment: a local disk need not be attached", Prove: noAttachments},
	}}
}

func claimWaits(ctx context.Context, s *Stage) error {
	if err := apply("waiting.yaml")(ctx, s); err != nil {
		return err
	}
	if _, err := s.eventSaying(ctx, "alone", "waiting for first consumer"); err != nil {
		return err
	}
	pvc, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, "alone", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pvc.Status.Phase != corev1.ClaimPending {
		return fmt.Errorf("the claim is %s", pvc.Status.Phase)
	}
	return s.noVolumes(ctx)
}

// noVolumes fails if any node has a logical volume.
func (s *Stage) noVolumes(ctx context.Context) error {
	for _, node := range s.Lab.NodeNames() {
		rows, err := s.logicalVolumes(ctx, node)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			return fmt.Errorf("%s has %d logical volumes: %v", node, len(rows), rows)
		}
	}
	return nil
}

func postgresPlaced(ctx context.Context, s *Stage) error {
	for i := range 3 {
		name := fmt.Sprintf("pg-%d", i)
		pod, err := s.podReady(ctx, name)
		if err != nil {
			return err
		}
		v, err := s.volumeOf(ctx, "data-"+name)
		if err != nil {
			return err
		}
		if v.node != pod.Spec.NodeName {
			return fmt.Errorf("%s runs on %s, its volume is on %s", name, pod.Spec.NodeName, v.node)
		}
	}
	return nil
}

func noAttachments(ctx context.Context, s *Stage) error {
	list, err := s.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(list.Items) > 0 {
		return fmt.Errorf("there are %d", len(list.Items))
	}
	return nil
}

func placement() Act {
	return Act{Title: "A claim goes where there is room, or says why not", Steps: []Step{
		{Says: "a claim of 13 GiB and one of 500 GiB are created, and one of an Immediate class", Prove: apply("placement.yaml")},
		{Says: "13 GiB fit on " + bigNode + " alone: there the pod runs", Prove: largeLands},
		{Says: "500 GiB fit nowhere: the claim stays Pending and an event says why", Prove: impossibleWaits},
		{Says: "the claim of the Immediate class is told to use WaitForFirstConsumer", Prove: immediateIsTold},
	}}
}

func largeLands(ctx context.Context, s *Stage) error {
	pod, err := s.podReady(ctx, "large")
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != bigNode {
		return fmt.Errorf("it runs on %s", pod.Spec.NodeName)
	}
	_, err = s.volumeOf(ctx, "large")
	return err
}

func impossibleWaits(ctx context.Context, s *Stage) error {
	said, err := s.eventSaying(ctx, "impossible", "did not have enough free storage")
	if err != nil {
		return err
	}
	s.Narrator.Note("the scheduler says: %s", said)
	pvc, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).Get(ctx, "impossible", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pvc.Status.Phase != corev1.ClaimPending {
		return fmt.Errorf("the claim is %s", pvc.Status.Phase)
	}
	return nil
}

func immediateIsTold(ctx context.Context, s *Stage) error {
	said, err := s.eventSaying(ctx, "too-early", "WaitForFirstConsumer")
	if err != nil {
		return err
	}
	s.Narrator.Note("nodelvm says: %s", said)
	return nil
}
