package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The disk that is a whole group is a device-mapper device over the loop device, which can return errors. It begins after the first MiB,
// so that LVM does not find the physical volume on the loop device.
const (
	loneDisk  = "lone-disk"
	workTable = `"0 262144 linear DISK 2048"`
	deadTable = `"0 262144 error"`
	loadTable = "dmsetup suspend --noflush --nolockfs " + loneDisk + "; dmsetup load " + loneDisk + " --table TABLE; dmsetup resume " + loneDisk
)

// loseGroup lets a disk that is a whole group return errors under a pod's volume, and restarts the node's driver: only the
// PersistentVolume still names the group.
func loseGroup(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("planted-lone.yaml")(ctx, env); err != nil {
		return err
	}
	if err := onFaultNode(ctx, env, addDisk+"dmsetup create "+loneDisk+" --table "+workTable+
		"; pvcreate -qq -y /dev/mapper/"+loneDisk+"; vgextend -qq GROUP /dev/mapper/"+loneDisk+"; vgsplit -qq GROUP vg-lone /dev/mapper/"+loneDisk); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.PodWithClaim("lone", "lone", "64Mi", faultNode), scenario.PodReady("lone"))(ctx, env); err != nil {
		return err
	}
	if err := setLoneDisk(ctx, env, deadTable); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.DriverNamespace, "-l", "app.kubernetes.io/component=node",
		"--field-selector", "spec.nodeName="+faultNode, "--wait"); err != nil {
		return err
	}
	return env.WaitDriverRolledOut(ctx)
}

func setLoneDisk(ctx context.Context, env *scenario.Environment, table string) error {
	return onceOnFaultNode(ctx, env, strings.ReplaceAll(loadTable, "TABLE", table))
}

// onceOnFaultNode runs a script once; onFaultNode runs it for each group of the node, which can have vg-lone, too.
func onceOnFaultNode(ctx context.Context, env *scenario.Environment, script string) error {
	out, err := env.RunOnNode(ctx, faultNode, "sh", "-ec", strings.NewReplacer("DISK", faultDisk, "FILE", faultFile).Replace(script))
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func findGroup(ctx context.Context, env *scenario.Environment) error {
	if err := setLoneDisk(ctx, env, workTable); err != nil {
		return err
	}
	if err := removePods(ctx, env); err != nil {
		return err
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "lone", "--ignore-not-found")
	return errors.Join(err, onceOnFaultNode(ctx, env, "vgremove -qq -y vg-lone; dmsetup remove --retry "+loneDisk+"; "+takeDisk))
}
