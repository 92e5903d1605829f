package iolimits

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	pod   = "limited"
	slow  = 2 << 20 // bytes per second: the classes of limited-classes.yaml
	quick = 8 << 20

	firstSeconds = 3 // for the container's first I/O in limited-pod.yaml, at the slow limit
)

// Scenarios returns the life of a volume with I/O limits.
func Scenarios() []scenario.Scenario {
	return []scenario.Scenario{{Title: "A claim's VolumeAttributesClass limits its pod's I/O", Steps: []scenario.Step{
		{Says: "the driver runs with ioLimits.enabled", Prove: enable},
		{Says: "a pod's first I/O is within 10 % of the class's limit", Prove: created},
		{Says: "another class raises the limit while the pod writes, and the claim and its PersistentVolume name it", Prove: raised},
		{Says: "the limit stays while the driver restarts, and is set again if it was lost meanwhile", Prove: driverRestarted},
		{Says: "another pod with the claim has the limit at its first I/O", Prove: podRestarted},
		{Says: "after the node's boot the pod has the limit at its first I/O", Prove: nodeRebooted},
		{Says: "everything is deleted, and the driver is as shipped", Prove: end},
	}}}
}

// enable installs what the chart renders with I/O limits.
func enable(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyChart(ctx, "ioLimits.enabled=true"); err != nil {
		return err
	}
	return scenario.Apply("classes.yaml")(ctx, env)
}

func created(ctx context.Context, env *scenario.Environment) error {
	for _, manifest := range []string{"limited-classes.yaml", "limited-pod.yaml"} {
		if err := env.ApplyWith(ctx, manifest, "NAME", pod); err != nil {
			return err
		}
	}
	return firstIOIsLimited(ctx, env)
}

// firstIOIsLimited fails unless the container's first I/O took what the limit demands, and io.max has it.
func firstIOIsLimited(ctx context.Context, env *scenario.Environment) error {
	var took float64
	if err := cluster.Eventually(ctx, func() error {
		text, err := env.ExecInPodAgain(ctx, pod, "sh", "-ec", "cat /data/took; mv /data/took /data/took.seen")
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
	return hasLimit(ctx, env, slow)
}

// hasLimit waits until io.max of the pod's cgroup has one line, with this limit of the bytes written.
func hasLimit(ctx context.Context, env *scenario.Environment, limit int) error {
	want := fmt.Sprintf(" rbps=max wbps=%d riops=max wiops=max", limit)
	return cluster.Eventually(ctx, func() error {
		text, err := onCgroup(ctx, env, "cat io.max")
		if err == nil && !strings.HasSuffix(strings.TrimSpace(text), want) {
			err = fmt.Errorf("io.max of the pod's cgroup is %q, want%s", text, want)
		}
		return err
	})
}

// onCgroup runs a script in the folder of the pod's cgroup.
func onCgroup(ctx context.Context, env *scenario.Environment, script string) (string, error) {
	now, err := env.WaitPodReady(ctx, pod)
	if err != nil {
		return "", err
	}
	text, err := env.RunOnNode(ctx, scenario.FirstNode, "sh", "-ec", fmt.Sprintf(`cd "$(find /sys/fs/cgroup -type d -name "pod%s")"; %s`, now.UID, script))
	return string(text), err
}

func raised(ctx context.Context, env *scenario.Environment) error {
	const seconds = 4
	if _, err := env.ExecInPod(ctx, pod, "sh", "-c", "dd if=/dev/zero of=/data/load bs=256k count=160 oflag=direct >/dev/null 2>&1 &"); err != nil {
		return err // at the slow limit it takes 20 s
	}
	if err := requestClass(ctx, env, "quick"); err != nil {
		return err
	}
	if err := hasLimit(ctx, env, quick); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return namesClass(ctx, env, "quick") }); err != nil {
		return err
	}
	begin := time.Now()
	if _, err := env.ExecInPod(ctx, pod, "sh", "-ec", fmt.Sprintf("while pidof dd; do sleep 0.1; done; dd if=/dev/zero of=/data/file bs=256k count=%d oflag=direct", seconds*quick/(256<<10))); err != nil {
		return err
	}
	if took := time.Since(begin).Seconds(); took < 0.9*seconds {
		return fmt.Errorf("%d MiB took %.2f s, and with the limit they take %d s", seconds*quick>>20, took, seconds)
	}
	return requestBack(ctx, env)
}

func requestBack(ctx context.Context, env *scenario.Environment) error {
	if err := requestClass(ctx, env, "slow"); err != nil {
		return err
	}
	return hasLimit(ctx, env, slow)
}

func requestClass(ctx context.Context, env *scenario.Environment, class string) error {
	patch := fmt.Sprintf(`{"spec":{"volumeAttributesClassName":%q}}`, class)
	_, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Patch(ctx, pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// namesClass fails unless the claim's status and its PersistentVolume name a class.
func namesClass(ctx context.Context, env *scenario.Environment, class string) error {
	claim, err := env.Claim(ctx, pod)
	if err != nil {
		return err
	}
	bound, err := env.BoundTo(ctx, pod)
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
	text, err := onCgroup(ctx, env, `cat io.max; echo "$(cut -d' ' -f1 io.max) wbps=max" >io.max`)
	if err != nil {
		return err
	}
	if !strings.Contains(text, fmt.Sprintf("wbps=%d", slow)) {
		return fmt.Errorf("without the driver, io.max of the pod's cgroup is %q", text)
	}
	if err := env.WaitDriverRolledOut(ctx); err != nil {
		return err
	}
	return hasLimit(ctx, env, slow)
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

func end(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.DeletePodsAndVolumes(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "volumeattributesclass", "slow", "quick"); err != nil {
		return err
	}
	return scenario.RestoreDriver(ctx, env)
}
