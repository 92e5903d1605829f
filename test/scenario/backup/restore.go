package backup

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// leftCapacity is what the filler leaves on a node: enough for each volume of the pod, not for two large ones.
const leftCapacity = 560 << 20

// restoreElsewhere restores the backup while the scheduler first finds only a node that lacks capacity for all volumes together. Velero's node-agents are stopped
// until the scheduler has selected another node: Velero keeps the first that it reads.
func (s *state) restoreElsewhere(ctx context.Context, env *scenario.Environment) error {
	for _, verb := range []string{"delete", "create"} {
		if _, err := env.Kubectl(ctx, "", verb, "namespace", cluster.Namespace); err != nil {
			return err
		}
	}
	if err := scenario.InOrder(fill, stopAgents)(ctx, env); err != nil {
		return err
	}
	name := backupName + "-elsewhere"
	began := time.Now()
	err := env.Cordoned(ctx, []string{sourceNode}, func() error {
		err := env.Cordoned(ctx, []string{restoreNode}, func() error {
			if err := s.run(ctx, env, "restore", "create", name, "--from-backup", backupName); err != nil {
				return err
			}
			return claimsReturn(ctx, env)
		})
		if err != nil {
			return err
		}
		if err := selectedForAll(ctx, env, restoreNode); err != nil {
			return err
		}
		if err := startAgents(ctx, env); err != nil {
			return err
		}
		return s.completes(ctx, env, "restore", name, func() error { return nil })
	})
	if err != nil {
		return err
	}
	if err := s.restored(ctx, env, name, began, restoreNode); err != nil {
		return err
	}
	return env.Delete(ctx, "pvc/filler")
}

// fill leaves leftCapacity on the node of Velero's server.
func fill(ctx context.Context, env *scenario.Environment) error {
	free, err := env.StableThinCapacity(ctx, serverNode)
	if err != nil {
		return err
	}
	const extent = 4 << 20
	if err := env.CreateClaim(ctx, serverNode, "filler", scenario.ThinClass, strconv.FormatInt((free-leftCapacity)/extent*extent, 10)); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "filler"); err != nil {
		return err
	}
	left, err := env.StableThinCapacity(ctx, serverNode)
	env.Reporter.Note("%s has capacity for %.0f MiB, before for %.0f MiB", serverNode, mebibytes(left), mebibytes(free))
	return err
}

// stopAgents stops Velero's node-agents on all nodes.
func stopAgents(ctx context.Context, env *scenario.Environment) error {
	if err := placeAgents(ctx, env, `"none"`); err != nil {
		return err
	}
	return env.WaitNone(ctx, "pods", "-n", veleroNamespace, "-l", "name=node-agent")
}

func startAgents(ctx context.Context, env *scenario.Environment) error {
	if err := placeAgents(ctx, env, "null"); err != nil {
		return err
	}
	_, err := env.Kubectl(ctx, "", "rollout", "status", "-n", veleroNamespace, "daemonset/node-agent")
	return err
}

// placeAgents sets a label that the nodes of the node-agents must have.
func placeAgents(ctx context.Context, env *scenario.Environment, label string) error {
	patch := `{"spec":{"template":{"spec":{"nodeSelector":{"nodelvm-test/agents":` + label + `}}}}}`
	_, err := env.Kubectl(ctx, "", "patch", "daemonset", "node-agent", "-n", veleroNamespace, "-p", patch)
	return err
}

// claimsReturn waits until the driver has returned each claim to the scheduler.
func claimsReturn(ctx context.Context, env *scenario.Environment) error {
	for _, claim := range claims {
		words := "node " + serverNode + " has insufficient capacity for claims books-data and books-log and books-raw together"
		if err := env.WaitClaimEvent(ctx, claim, "SelectedNodeRemoved", words); err != nil {
			return err
		}
	}
	return nil
}

// selectedForAll waits until the scheduler has selected the node for each claim.
func selectedForAll(ctx context.Context, env *scenario.Environment, node string) error {
	return cluster.Eventually(ctx, func() error {
		for _, name := range claims {
			claim, err := env.Claim(ctx, name)
			if err != nil {
				return err
			}
			if is := claim.Annotations[scenario.AnnSelectedNode]; is != node {
				return fmt.Errorf("node %q is selected for claim %s, want %s%s", is, name, node, env.LastEvents(ctx, name))
			}
		}
		return nil
	})
}

// restored waits for the pod of a restore, and checks that all its volumes are on its node; node "": any.
func (s *state) restored(ctx context.Context, env *scenario.Environment, name string, began time.Time, node string) error {
	pod, err := env.WaitPodReady(ctx, databasePod)
	if err != nil {
		return err
	}
	env.Reporter.Note("Ready on %s %.0f s after the begin of the restore", pod.Spec.NodeName, time.Since(began).Seconds())
	if node != "" && pod.Spec.NodeName != node {
		return fmt.Errorf("the pod runs on %s, want %s", pod.Spec.NodeName, node)
	}
	for _, claim := range claims {
		v, err := env.VolumeOf(ctx, claim)
		if err != nil {
			return err
		}
		if v.Node != pod.Spec.NodeName {
			return fmt.Errorf("the volume of claim %s is on %s, and its pod on %s", claim, v.Node, pod.Spec.NodeName)
		}
	}
	return s.noteTransfers(ctx, env, "datadownloads", "velero.io/restore-name="+name)
}

// checkData proves that the restored database has all rows, and is consistent.
func (s *state) checkData(ctx context.Context, env *scenario.Environment) error {
	rows, err := env.QueryIn(ctx, databasePod, fmt.Sprintf("select count(*) from acked where n <= %d", s.acked))
	if err != nil {
		return err
	}
	if rows != fmt.Sprint(s.acked) {
		return fmt.Errorf("%s of %d acknowledged rows are there", rows, s.acked)
	}
	if err := env.CheckConsistent(ctx, databasePod); err != nil {
		return err
	}
	all, err := env.QueryIn(ctx, databasePod, "select (select count(*) from acked) || ' rows, ' || (select count(*) from pgbench_history) || ' transactions'")
	if err != nil {
		return err
	}
	env.Reporter.Note("the restored database has %s", all)
	sum, err := checksum(ctx, env)
	if err == nil && sum != s.raw {
		err = fmt.Errorf("the raw volume has the checksum %s, had %s", sum, s.raw)
	}
	return err
}
