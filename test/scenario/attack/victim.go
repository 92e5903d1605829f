package attack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	secret      = "the other tenant's data"
	writeSecret = "for i in 1 2 3 4 5 6 7 8; do echo \"" + secret + "\" >> /data/file; done; sync; grep -c tenant /data/file"
)

func victimRuns(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.Apply("attack-victim.yaml"), scenario.PodReady("victim"))(ctx, env); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, "victim", "sh", "-ec", writeSecret)
	return err
}

func victimIsSafe(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(victimRuns, victimIsOnDisks)(ctx, env); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "attacker", "sh", "-ec", "! grep -q \""+secret+"\" /dev/raw-volume"); err != nil {
		return fmt.Errorf("the attacker's device shows the other tenant's data: %w", err)
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod/victim", "pvc/victim", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 0)
}

func victimIsOnDisks(ctx context.Context, env *scenario.Environment) error {
	bound, err := env.BoundTo(ctx, "victim")
	if err != nil {
		return err
	}
	return isOnDisks(ctx, env, bound.Volume.Spec.CSI.VolumeHandle)
}

// isOnDisks asks LVM, which reads the node's disks alone, whether it has a volume or a snapshot.
func isOnDisks(ctx context.Context, env *scenario.Environment, handle string) error {
	vg, lv, _ := strings.Cut(handle, "/")
	out, err := env.RunOnNode(ctx, attackedNode, "lvs", "--devices", nodeDisks, "--noheadings", "-o", "vg_uuid,lv_name", "-S", "lv_name="+lv)
	if err != nil {
		return err
	}
	if fields := strings.Fields(string(out)); !slices.Equal(fields, []string{vg, lv}) {
		return fmt.Errorf("volume %s: LVM on the node's disks answers %q", handle, out)
	}
	return nil
}

// NextTenant runs a tenant's pod on the attacked node: its volume is on the node's own disks, and goes with its claim. The published capacity is that of these
// disks before and after.
func NextTenant(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(capacityIsReal, victimRuns, victimIsOnDisks)(ctx, env); err != nil {
		return err
	}
	bound, err := env.BoundTo(ctx, "victim")
	if err != nil {
		return err
	}
	if err := env.Delete(ctx, "pod/victim", "pvc/victim"); err != nil {
		return err
	}
	gone := func() error {
		if isOnDisks(ctx, env, bound.Volume.Spec.CSI.VolumeHandle) == nil {
			return fmt.Errorf("volume %s is still there", bound.Volume.Spec.CSI.VolumeHandle)
		}
		return nil
	}
	return errors.Join(cluster.Eventually(ctx, gone), capacityIsReal(ctx, env))
}

func capacityIsReal(ctx context.Context, env *scenario.Environment) error {
	return publishedIsReal(ctx, env, 0)
}

func victimIsBack(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.Apply("attack-victim.yaml"), scenario.PodReady("victim"))(ctx, env); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "victim", "grep", "-q", secret, "/data/file"); err != nil {
		return err
	}
	return victimIsOnDisks(ctx, env)
}

// nodeRun is what a restart of the attacked node or of a container of its driver changes.
type nodeRun struct{ was string }

func (r *nodeRun) note(ctx context.Context, env *scenario.Environment) (err error) {
	r.was, err = runOf(ctx, env, attackedNode)
	return err
}

func (r *nodeRun) goesOn(ctx context.Context, env *scenario.Environment) error {
	is, err := runOf(ctx, env, attackedNode)
	if err == nil && is != r.was {
		err = fmt.Errorf("the run of the node was\n%s\nand is\n%s", r.was, is)
	}
	return err
}

func runOf(ctx context.Context, env *scenario.Environment, node string) (string, error) {
	boot, err := env.RunOnNode(ctx, node, "cat", "/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	pods, err := env.Client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nodelvm", FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return "", err
	}
	run := string(boot)
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			run += fmt.Sprintf("%s of pod %s: %s, restarted %d times\n", c.Name, pod.UID, c.ContainerID, c.RestartCount)
		}
	}
	return run, nil
}
