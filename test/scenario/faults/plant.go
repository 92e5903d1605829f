package faults

import (
	"context"
	"errors"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func removePods(ctx context.Context, env *scenario.Environment) error {
	return scenario.InOrder(scenario.DeletePods, scenario.NoVolumesRemain)(ctx, env)
}

// onFaultNode runs a script on faultNode, with GROUP, the name of its volume group, and with DISK and FILE.
func onFaultNode(ctx context.Context, env *scenario.Environment, script string) error {
	return env.RunInGroup(ctx, faultNode, strings.NewReplacer("DISK", faultDisk, "FILE", faultFile).Replace(script))
}

func retag(option string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		for _, node := range env.Lab.NodeNames() {
			if err := env.RunInGroup(ctx, node, "vgchange -qq "+option+" fast GROUP"); err != nil {
				return err
			}
		}
		return nil
	}
}

// fillPool leaves the group no free extents, so that the driver cannot extend the pool, and writes to a thin volume.
func fillPool(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.PodWithClaim("thin", "thin", "64Mi", faultNode), scenario.PodReady("thin"))(ctx, env); err != nil {
		return err
	}
	return onFaultNode(ctx, env, `lvcreate -qq -y -Wn -Zn -l 100%FREE -n admins GROUP
size=$(lvs --noheadings --nosuffix --units m -o lv_size GROUP/nodelvm-thin | cut -d. -f1)
lvcreate -qq -y -Wn -V ${size}m -T GROUP/nodelvm-thin -n filler
dd if=/dev/zero of=/dev/GROUP/filler bs=1M count=$((size * 97 / 100)) oflag=direct status=none`)
}

func emptyPool(ctx context.Context, env *scenario.Environment) error {
	return errors.Join(onFaultNode(ctx, env, "lvremove -qq -y GROUP/filler GROUP/admins || true"), removePods(ctx, env))
}

// The disk of the faults is a loop device, which can be lost.
const (
	faultDisk = "/dev/loop7"
	faultFile = "/root/fault-disk"
	addDisk   = `truncate -s 132M FILE; mknod -m 660 DISK b 7 7 2>/dev/null || true; losetup DISK FILE; `
	takeDisk  = `losetup -d DISK 2>/dev/null || true; rm -f FILE`
)

// loseVolume loses a disk with a volume that no pod uses: the claim is the only one in the group, and fits on the smallest disk.
func loseVolume(ctx context.Context, env *scenario.Environment) error {
	if err := onFaultNode(ctx, env, addDisk+"pvcreate -qq -y DISK; vgextend -qq GROUP DISK"); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.PodWithClaim("lost", "fast", "64Mi", faultNode), scenario.PodReady("lost"))(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "lost", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { // the kubelet unmounts the volume some time after the pod's end
		return onFaultNode(ctx, env, `lvs --noheadings -o devices GROUP | grep -q DISK; vgchange -qq -an GROUP; losetup -d DISK; ! losetup DISK 2>/dev/null`)
	})
}

func findVolume(ctx context.Context, env *scenario.Environment) error {
	if err := onFaultNode(ctx, env, "losetup DISK >/dev/null 2>&1 || losetup DISK FILE"); err != nil {
		return err
	}
	if err := removePods(ctx, env); err != nil {
		return err
	}
	return onFaultNode(ctx, env, "vgreduce -qq GROUP DISK; "+takeDisk)
}

func fillFileSystem(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.PodWithClaim("full", "fast", "64Mi", ""), scenario.PodReady("full"))(ctx, env); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, "full", "sh", "-c", "dd if=/dev/zero of=/data/file bs=1M 2>/dev/null; sync; test -s /data/file")
	return err
}

// declaredGroup is the declaration of a group of the disk. Its file is in the driver's state folder, which is the host's.
const (
	declaredFile  = "/var/lib/nodelvm/declared.yaml"
	declaredGroup = "volumeGroups:\n- name: vg-declared\n  devices:\n  - paths: [" + faultDisk + "]\n"
	declareIt     = `[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--volume-groups-file=` + declaredFile + `"}]`
)

func declareDisk(ctx context.Context, env *scenario.Environment) error {
	if err := onFaultNode(ctx, env, addDisk+"mkfs.ext4 -q DISK"); err != nil {
		return err
	}
	for _, node := range env.Lab.NodeNames() {
		if _, err := env.RunOnNode(ctx, node, "sh", "-ec", `printf '%s' "$1" > `+declaredFile, "sh", declaredGroup); err != nil {
			return err
		}
	}
	if _, err := env.Kubectl(ctx, "", "patch", "-n", cluster.DriverNamespace, cluster.DaemonSet, "--type=json", "-p", declareIt); err != nil {
		return err
	}
	return env.WaitDriverRolledOut(ctx)
}

func withdrawDisk(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.RestoreDriver(ctx, env); err != nil {
		return err
	}
	for _, node := range env.Lab.NodeNames() {
		if _, err := env.RunOnNode(ctx, node, "rm", "-f", declaredFile); err != nil {
			return err
		}
	}
	return onFaultNode(ctx, env, takeDisk)
}

func moveKubelet(ctx context.Context, env *scenario.Environment) error {
	return env.ApplyDriverWith(ctx, "/var/lib/kubelet", "/var/lib/other-kubelet", "type: Directory\n", "type: DirectoryOrCreate\n")
}
