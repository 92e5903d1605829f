package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
)

func reboot() Scenario {
	return Scenario{Title: "A node reboots with volumes of every layout", Steps: []Step{
		{Says: "one pod on " + loadNode + " writes to a linear, a striped, a raid1 and a thin volume", Prove: everyLayoutWritten},
		{Says: "the node is shut down and boots: the pod runs again without help, and reads what it wrote", Prove: everyLayoutRead},
		{Says: "everything is deleted", Prove: func(ctx context.Context, env *Environment) error {
			if err := deleteEverything(ctx, env); err != nil {
				return err
			}
			return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
		}},
	}}
}

const (
	writeLayouts = `for l in linear striped raid1 thin; do ` + pattern + ` | tee /volumes/$l/file | md5sum > /volumes/$l/sum; done; sync`
	readLayouts  = `for l in linear striped raid1 thin; do grep -q " /volumes/$l ext4 " /proc/mounts; [ "$(md5sum < /volumes/$l/file)" = "$(cat /volumes/$l/sum)" ]; done`
)

// dropPool removes an empty thin pool: it keeps the room that earlier scenarios had it grow to, perhaps the whole of a disk.
const dropPool = `for pool in $(lvs --noheadings -o vg_name,lv_name --separator / -S 'segtype=thin-pool && thin_count=0'); do lvremove -y -qq $pool; done`

func everyLayoutWritten(ctx context.Context, env *Environment) error {
	if _, err := env.RunOnNode(ctx, loadNode, "sh", "-ec", dropPool); err != nil {
		return err
	}
	if err := (&freshness{}).begin(ctx, env); err != nil {
		return err
	}
	if err := apply("load-layouts.yaml")(ctx, env); err != nil {
		return err
	}
	for name, class := range map[string]string{"linear": loadClass, "striped": "striped", "raid1": "raid1", "thin": thinClass} {
		if err := env.claimOf(ctx, name, class, "64Mi"); err != nil {
			return err
		}
	}
	if _, err := env.WaitPodReady(ctx, "layouts"); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, "layouts", "sh", "-ec", writeLayouts)
	return err
}

func everyLayoutRead(ctx context.Context, env *Environment) error {
	began := time.Now()
	if err := env.rebootNode(ctx, loadNode); err != nil {
		return err
	}
	if _, err := env.inPodAgain(ctx, "layouts", "sh", "-ec", readLayouts); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.restarted(ctx, "layouts") }); err != nil { // the kubelet tells it when it comes to it
		return err
	}
	env.Reporter.Note("it read them %.0f s after the node's boot began", time.Since(began).Seconds())
	return nil
}

// rebootNode leaves what a shutdown leaves: everything written, every file system read-only. The kernel is only asked for that, and says
// when it is done.
func (env *Environment) rebootNode(ctx context.Context, node string) error {
	if _, err := env.RunOnNode(ctx, node, "sh", "-ec", "sync; echo u > /proc/sysrq-trigger"); err != nil {
		return err
	}
	readOnly := func() error {
		_, err := env.RunOnNode(ctx, node, "sh", "-c", "dmesg | grep 'Emergency Remount complete'")
		return err
	}
	if err := cluster.Eventually(ctx, readOnly); err != nil {
		return err
	}
	if err := env.Lab.PowerCut(node); err != nil {
		return err
	}
	return env.Lab.Boot(ctx, node)
}

// restarted fails unless the API knows that the pod's container ended and runs again.
func (env *Environment) restarted(ctx context.Context, name string) error {
	pod, err := env.WaitPodReady(ctx, name)
	if err != nil {
		return err
	}
	if pod.Status.ContainerStatuses[0].RestartCount == 0 {
		return fmt.Errorf("the pod says that it never ended: %s", containerOf(pod))
	}
	return nil
}
