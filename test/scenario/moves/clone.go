package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// clone creates a pod whose claim is a clone of that of pod origin.
func clone(ctx context.Context, env *scenario.Environment, name, class string) error {
	return env.ApplyWith(ctx, "restore-replicas.yaml", "NAME", name, "CLASS", class, "SIZE", "256Mi", "POLICY", "Parallel", "SELECTOR", "{}", "REPLICAS", "1",
		"SOURCE", "{kind: PersistentVolumeClaim, name: origin}")
}

// stuck clones with a class that creates clones on the node of their source alone.
func stuck(ctx context.Context, env *scenario.Environment) error {
	return env.Cordoned(ctx, []string{here}, func() error {
		if err := clone(ctx, env, "stuck", "thin"); err != nil {
			return err
		}
		for _, words := range []string{"the node is cordoned", api.ParameterRestoreOnOtherNodes} { // with which class the clone can be elsewhere
			if err := env.WaitClaimEvent(ctx, "data-stuck-0", api.ReasonSourceNodeExcluded, words); err != nil {
				return err
			}
		}
		claim, err := env.Claim(ctx, "data-stuck-0")
		switch {
		case err != nil:
			return err
		case claim.Spec.VolumeName != "":
			return fmt.Errorf("claim %s has a volume", claim.Name)
		}
		return forget(ctx, env, "stuck", 1)
	})
}

// cloned clones the claim while its pod writes.
func cloned(ctx context.Context, env *scenario.Environment) error {
	return env.Cordoned(ctx, []string{here}, func() error {
		sum, err := env.ExecInPod(ctx, "origin", "sh", "-ec", "sync; "+sumCommand)
		if err != nil {
			return err
		}
		if err := cloneBegins(ctx, env, "cloned"); err != nil {
			return err
		}
		if _, err := env.ExecInPod(ctx, "origin", "sh", "-ec", "dd if=/dev/urandom of=/data/content bs=1M count=16 conv=notrunc 2>/dev/null; sync"); err != nil {
			return err
		}
		pod, err := env.WaitPodReady(ctx, "cloned-0")
		if err != nil {
			return err
		}
		if pod.Spec.NodeName == here {
			return fmt.Errorf("pod %s runs on the cordoned node", pod.Name)
		}
		if said, err := env.ExecInPod(ctx, "cloned-0", "sh", "-ec", sumCommand); err != nil || said != sum {
			return fmt.Errorf("the clone has %q, and the claim had %q: %w", said, sum, err)
		}
		env.Reporter.Note("the clone runs on %s", pod.Spec.NodeName)
		return errors.Join(noCloneSnapshot(ctx, env), forget(ctx, env, "cloned", 1))
	})
}

// cloneBegins creates a clone, and waits until it is copied from a snapshot.
func cloneBegins(ctx context.Context, env *scenario.Environment, name string) error {
	if err := clone(ctx, env, name, "thin-anywhere"); err != nil {
		return err
	}
	if err := env.WaitClaimEvent(ctx, "data-"+name+"-0", "ProvisioningFailed", "copies claim demo/origin from node "+here); err != nil {
		return err
	}
	count, err := cloneSnapshots(ctx, env)
	if err == nil && count != 1 {
		err = fmt.Errorf("%d snapshots for clones are on %s", count, here)
	}
	return err
}

// deletedClone deletes a clone while its copy runs.
func deletedClone(ctx context.Context, env *scenario.Environment) error {
	return env.Cordoned(ctx, []string{here}, func() error {
		if err := cloneBegins(ctx, env, "deleted-clone"); err != nil {
			return err
		}
		if err := forget(ctx, env, "deleted-clone", 1); err != nil {
			return err
		}
		return errors.Join(noCloneSnapshot(ctx, env), cluster.Eventually(ctx, func() error {
			for _, node := range []string{there, far} {
				if count, err := copies(ctx, env, node); err != nil || count > 0 {
					return fmt.Errorf("%d copies are on %s: %w", count, node, err)
				}
			}
			return nil
		}))
	})
}

// cloneSnapshots returns how many snapshots for clones the node of the origin has.
func cloneSnapshots(ctx context.Context, env *scenario.Environment) (count int, err error) {
	rows, err := env.LogicalVolumes(ctx, here)
	for _, row := range rows {
		if strings.Contains(row.Tags, "nodelvm.name="+api.PrefixClone) {
			count++
		}
	}
	return count, err
}

// noCloneSnapshot waits until the node of the origin has no snapshot for a clone, and its PersistentVolume offers none.
func noCloneSnapshot(ctx context.Context, env *scenario.Environment) error {
	claim, err := env.Claim(ctx, "origin")
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		count, err := cloneSnapshots(ctx, env)
		if err != nil || count > 0 {
			return fmt.Errorf("%d snapshots for clones are on %s: %w", count, here, err)
		}
		pv, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for name := range pv.Annotations {
			if strings.HasPrefix(name, api.AnnotationCloneOffer) {
				return fmt.Errorf("PersistentVolume %s has the annotation %s", pv.Name, name)
			}
		}
		return nil
	})
}
