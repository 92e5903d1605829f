package iolimits

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The classes of limited-classes.yaml: bytes that they let a pod write per second.
const (
	slow     = 2 << 20
	confined = 1 << 20
)

const (
	pod          = "limited"
	firstSeconds = 3 // for the container's first I/O in limited-pod.yaml, at the slow limit
)

// Scenarios returns the life of a volume with I/O limits, and that of two databases on one disk.
func Scenarios() []scenario.Scenario {
	n := &neighbours{}
	return []scenario.Scenario{
		{Title: "A claim's VolumeAttributesClass limits its pod's I/O", Steps: []scenario.Step{
			{Says: "the driver runs with ioLimits.enabled", Prove: enable},
			{Says: "a pod's first I/O takes as long as the class's limit demands", Prove: created},
			{Says: "the limit stays while the driver restarts, and is set again if it was lost meanwhile", Prove: driverRestarted},
			{Says: "a container that restarts has the limit at its first I/O", Prove: containerRestarted},
			{Says: "another pod with the claim has the limit at its first I/O", Prove: podRestarted},
			{Says: "after the node's boot the pod has the limit at its first I/O", Prove: nodeRebooted},
			{Says: "after a power cut amid its writes the pod has the limit at its first I/O", Prove: powerCut},
			{Says: "its pod and volume are deleted", Prove: scenario.DeletePodsAndVolumes},
		}},
		{Title: "A pod floods the disk of another pod's database", Steps: []scenario.Step{
			{Says: "two pods with PostgreSQL have volumes on one disk", Prove: n.begin},
			{Says: "without limits the flood takes the other database's throughput", Prove: n.unlimited},
			{Says: "with a limit the other database keeps at least 90 % of its throughput", Limit: 20 * time.Minute, Prove: n.limited},
			{Says: "everything is deleted, and the driver is as shipped", Prove: n.end},
		}},
	}
}

// enable installs what the chart renders with I/O limits.
func enable(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyChart(ctx, "ioLimits.enabled=true"); err != nil {
		return err
	}
	return scenario.Apply("classes.yaml", "limited-classes.yaml")(ctx, env)
}

func created(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyWith(ctx, "limited-pod.yaml", "NAME", pod); err != nil {
		return err
	}
	return firstIOIsLimited(ctx, env)
}

// firstIOIsLimited fails unless the container's first I/O took what the limit demands, and io.max has it. The file with its time is renamed on
// the disk, so that no later container leaves it, whatever happens to the node.
func firstIOIsLimited(ctx context.Context, env *scenario.Environment) error {
	var took float64
	if err := cluster.Eventually(ctx, func() error {
		text, err := env.ExecInPodAgain(ctx, pod, "sh", "-ec", "cat /data/took; mv /data/took /data/took.seen; sync")
		if err != nil {
			return err
		}
		hundredths, err := strconv.Atoi(strings.TrimSpace(text))
		took = float64(hundredths) / 100
		return err
	}); err != nil {
		return err
	}
	env.Reporter.Note("its first I/O was at %.2f of the limit", firstSeconds/took)
	if took < 0.9*firstSeconds {
		return fmt.Errorf("the container's first I/O took %.2f s, and with the limit it takes %d s", took, firstSeconds)
	}
	return hasLimit(ctx, env, pod, slow)
}

// load is a writer that goes on.
const load = `while true; do dd if=/dev/zero of=/data/load bs=256k count=32 oflag=direct conv=notrunc; done </dev/null >/dev/null 2>&1 &`

// requestClass gives a claim a class and waits until the pod has its limit, and the claim and its PersistentVolume name it.
func requestClass(ctx context.Context, env *scenario.Environment, claim, class string, limit int) error {
	patch := fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, class)
	if _, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Patch(ctx, claim, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := hasLimit(ctx, env, claim, limit); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return namesClass(ctx, env, claim, class) })
}

// namesClass fails unless the claim's status and its PersistentVolume name a class.
func namesClass(ctx context.Context, env *scenario.Environment, name, class string) error {
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	bound, err := env.BoundTo(ctx, name)
	if err != nil {
		return err
	}
	current, of := claim.Status.CurrentVolumeAttributesClassName, bound.Volume.Spec.VolumeAttributesClassName
	if current == nil || *current != class || of == nil || *of != class {
		return fmt.Errorf("the claim's status and its PersistentVolume do not name the class %s: %+v", class, claim.Status)
	}
	return nil
}

func driverRestarted(ctx context.Context, env *scenario.Environment) error {
	driver, err := env.DriverPodOn(ctx, scenario.FirstNode)
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.DriverNamespace, driver.Name, "--wait"); err != nil {
		return err
	}
	text, err := onCgroup(ctx, env, pod, `cat io.max; echo "$(cut -d' ' -f1 io.max) wbps=max" >io.max`)
	if err != nil {
		return err
	}
	if !strings.Contains(text, fmt.Sprintf("wbps=%d", slow)) {
		return fmt.Errorf("without the driver, io.max of the pod's cgroup is %q", text)
	}
	if err := env.WaitDriverRolledOut(ctx); err != nil {
		return err
	}
	return hasLimit(ctx, env, pod, slow)
}

func containerRestarted(ctx context.Context, env *scenario.Environment) error {
	const kill = `for p in $(cat */cgroup.procs); do if [ "$(cat /proc/$p/comm)" = sleep ]; then kill -9 $p; fi; done`
	if _, err := onCgroup(ctx, env, pod, kill); err != nil {
		return err
	}
	if err := firstIOIsLimited(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckRestarted(ctx, pod) })
}

func podRestarted(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.Namespace, pod, "--wait"); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "limited-pod.yaml", "NAME", pod); err != nil {
		return err
	}
	return firstIOIsLimited(ctx, env)
}

func nodeRebooted(ctx context.Context, env *scenario.Environment) error {
	if err := env.RebootNode(ctx, scenario.FirstNode); err != nil {
		return err
	}
	return firstIOIsLimited(ctx, env)
}

func powerCut(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.ExecInPod(ctx, pod, "sh", "-ec", load); err != nil {
		return err
	}
	if err := errors.Join(env.Lab.PowerCut(scenario.FirstNode), env.Lab.Boot(ctx, scenario.FirstNode)); err != nil {
		return err
	}
	return firstIOIsLimited(ctx, env)
}
