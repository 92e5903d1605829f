package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// podOf plants a pod with a claim; node is empty for any.
func podOf(name, class, size, node string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		selector := "{}"
		if node != "" {
			selector = "{kubernetes.io/hostname: " + node + "}"
		}
		return env.applyWith(ctx, "planted-pod.yaml", "NAME", name, "CLASS", class, "SIZE", size, "SELECTOR", selector)
	}
}

// wrongClass plants a storage class that no node can serve, and a pod with a claim of it.
func wrongClass(name string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		return errors.Join(apply("planted-"+name+".yaml")(ctx, env), podOf(name, name, "64Mi", "")(ctx, env))
	}
}

// removePods also deletes the wrong classes.
func removePods(ctx context.Context, env *Environment) error {
	for _, args := range [][]string{
		{"delete", "pod", "-n", cluster.Namespace, "--all", "--wait"},
		{"delete", "pvc", "-n", cluster.Namespace, "--all", "--wait"},
		{"delete", "storageclass", "misspelt", "missing", "--ignore-not-found"},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return noVolumesRemain(ctx, env)
}

// inGroup runs a script on the node with GROUP, the name of its volume group.
func (env *Environment) inGroup(ctx context.Context, node, script string) error {
	groups, err := env.VolumeGroups(ctx, node)
	if err != nil {
		return err
	}
	for _, g := range groups {
		out, err := env.RunOnNode(ctx, node, "sh", "-ec", strings.NewReplacer("GROUP", g.Name, "DISK", faultDisk, "FILE", faultFile).Replace(script))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	return nil
}

func retag(option string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		for _, node := range env.Lab.NodeNames() {
			if err := env.inGroup(ctx, node, "vgchange -qq "+option+" fast GROUP"); err != nil {
				return err
			}
		}
		return nil
	}
}

// fillPool leaves the group no free extents, so that the driver cannot extend the pool, and writes to a thin volume.
func fillPool(ctx context.Context, env *Environment) error {
	if err := podOf("thin", "thin", "64Mi", faultNode)(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "thin"); err != nil {
		return err
	}
	return env.inGroup(ctx, faultNode, `lvcreate -qq -y -Wn -Zn -l 100%FREE -n admins GROUP
size=$(lvs --noheadings --nosuffix --units m -o lv_size GROUP/nodelvm-thin | cut -d. -f1)
lvcreate -qq -y -Wn -V ${size}m -T GROUP/nodelvm-thin -n filler
dd if=/dev/zero of=/dev/GROUP/filler bs=1M count=$((size * 97 / 100)) oflag=direct status=none`)
}

func emptyPool(ctx context.Context, env *Environment) error {
	return errors.Join(env.inGroup(ctx, faultNode, "lvremove -qq -y GROUP/filler GROUP/admins || true"), removePods(ctx, env))
}

// The disk of the faults is a loop device, which can be lost.
const (
	faultDisk = "/dev/loop7"
	faultFile = "/root/fault-disk"
	addDisk   = `truncate -s 132M FILE; mknod -m 660 DISK b 7 7 2>/dev/null || true; losetup DISK FILE; `
	takeDisk  = `losetup -d DISK 2>/dev/null || true; rm -f FILE`
)

// loseVolume loses a disk with a volume that no pod uses: the claim is the only one in the group, and fits on the smallest disk.
func loseVolume(ctx context.Context, env *Environment) error {
	if err := env.inGroup(ctx, faultNode, addDisk+"pvcreate -qq -y DISK; vgextend -qq GROUP DISK"); err != nil {
		return err
	}
	if err := podOf("lost", "fast", "64Mi", faultNode)(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "lost"); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "lost", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { // the kubelet unmounts the volume some time after the pod's end
		return env.inGroup(ctx, faultNode, `lvs --noheadings -o devices GROUP | grep -q DISK; vgchange -qq -an GROUP; losetup -d DISK; ! losetup DISK 2>/dev/null`)
	})
}

func findVolume(ctx context.Context, env *Environment) error {
	if err := env.inGroup(ctx, faultNode, "losetup DISK >/dev/null 2>&1 || losetup DISK FILE"); err != nil {
		return err
	}
	if err := removePods(ctx, env); err != nil {
		return err
	}
	return env.inGroup(ctx, faultNode, "vgreduce -qq GROUP DISK; "+takeDisk)
}

func fillFileSystem(ctx context.Context, env *Environment) error {
	if err := podOf("full", "fast", "64Mi", "")(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "full"); err != nil {
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

func declareDisk(ctx context.Context, env *Environment) error {
	if err := env.inGroup(ctx, faultNode, addDisk+"mkfs.ext4 -q DISK"); err != nil {
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
	return env.driverRolledOut(ctx)
}

func withdrawDisk(ctx context.Context, env *Environment) error {
	if err := restoreDriver(ctx, env); err != nil {
		return err
	}
	for _, node := range env.Lab.NodeNames() {
		if _, err := env.RunOnNode(ctx, node, "rm", "-f", declaredFile); err != nil {
			return err
		}
	}
	return env.inGroup(ctx, faultNode, takeDisk)
}

func (env *Environment) driverRolledOut(ctx context.Context) error {
	_, err := env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, cluster.DaemonSet)
	return err
}

// applyDriver applies the shipped manifest, with other words in the place of some.
func (env *Environment) applyDriver(ctx context.Context, oldNew ...string) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, "deploy", "nodelvm.yaml"))
	if err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, strings.NewReplacer(oldNew...).Replace(string(text)), "apply", "-f", "-")
	return err
}

func restoreDriver(ctx context.Context, env *Environment) error {
	if err := env.applyDriver(ctx); err != nil {
		return err
	}
	return env.driverRolledOut(ctx)
}

func moveKubelet(ctx context.Context, env *Environment) error {
	return env.applyDriver(ctx, "/var/lib/kubelet", "/var/lib/other-kubelet", "type: Directory\n", "type: DirectoryOrCreate\n")
}

func deleteDriverObject(ctx context.Context, env *Environment) error {
	_, err := env.Kubectl(ctx, "", "delete", "csidriver", cluster.Driver)
	return err
}

func blockDrain(ctx context.Context, env *Environment) error {
	if err := podOf("budget", "fast", "64Mi", "")(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "budget"); err != nil {
		return err
	}
	return apply("planted-budget.yaml")(ctx, env)
}

func unblockDrain(ctx context.Context, env *Environment) error {
	_, err := env.Kubectl(ctx, "", "delete", "pdb", "always", "-n", cluster.Namespace, "--ignore-not-found")
	return errors.Join(err, removePods(ctx, env))
}
