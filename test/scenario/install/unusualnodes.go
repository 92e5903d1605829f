package install

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// An unusual node lacks what a distribution for containers lacks. The preparation is undone in the end.
type unusualNode struct {
	what, node    string
	prepare, undo string
}

var unusualNodes = []unusualNode{
	{"without lvm2 and its udev rules", "node-1",
		`for f in /usr/lib/udev/rules.d/*lvm* /usr/lib/udev/rules.d/*dm*; do mount --bind /dev/null $f; done
udevadm control --reload
mount --bind /bin/false $(readlink -f /usr/sbin/lvm)
! lvs 2>/dev/null`,
		`umount $(readlink -f /usr/sbin/lvm) /usr/lib/udev/rules.d/*lvm* /usr/lib/udev/rules.d/*dm*; udevadm control --reload`},
	{"with a read-only /usr and /etc", "node-2",
		`for d in /usr /etc; do mount --bind $d $d; mount -o remount,bind,ro $d; ! touch $d/x 2>/dev/null; done`,
		`umount --lazy /usr /etc`},
	{"with an empty /lib/modules that has loaded device-mapper at boot", "node-3",
		`modprobe -a dm_mod dm_thin_pool && mount -t tmpfs -o ro none /lib/modules && [ -z "$(ls /lib/modules)" ]`, `umount /lib/modules`},
	{"whose kubelet's directory pods is a symbolic link within its root", "node-3",
		`cd /var/lib/kubelet && mv pods pods-of-the-node && ln -s pods-of-the-node pods`, `cd /var/lib/kubelet && rm pods && mv pods-of-the-node pods`},
}

// restoreTime limits the clean-up after which the driver runs as shipped: its pods are replaced one by one.
const restoreTime = 5 * time.Minute

// otherKubeletRoot is where k0s keeps its kubelet's files.
const otherKubeletRoot = "/var/lib/k0s/kubelet"

// The lab starts a kubelet that ends again: a wrapper in its place adds the root directory.
const (
	moveKubeletRoot = `mkdir -p /run/real && touch /run/real/kubelet && real=$(command -v kubelet) && mount --bind $real /run/real/kubelet && mount --make-private /run/real/kubelet
printf '#!/bin/sh\nexec /run/real/kubelet --root-dir=` + otherKubeletRoot + ` "$@"\n' >/run/kubelet-wrapper && chmod +x /run/kubelet-wrapper
mount --bind /run/kubelet-wrapper $real
pkill -x kubelet
until [ -d ` + otherKubeletRoot + `/plugins_registry ]; do sleep 0.2; done`
	restoreKubeletRoot = `umount $(command -v kubelet) && pkill -x kubelet; umount --lazy /run/real/kubelet`
)

// UnusualNodes runs a volume's life on nodes that lack what most have, and on nodes with another kubelet root.
func UnusualNodes() []scenario.Scenario {
	sc := scenario.Scenario{Title: "A volume's life on unusual nodes", Steps: []scenario.Step{{Says: "storage classes are created", Prove: scenario.CreateClasses}}}
	const life = " a thin volume is created, written, expanded, read by another pod, and deleted"
	for _, u := range unusualNodes {
		sc.Steps = append(sc.Steps, scenario.Step{Says: "on a node " + u.what + life, Prove: u.prove})
	}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "on a node whose kubelet's root is " + otherKubeletRoot + life, Prove: lifeWithOtherKubeletRoot})
	sc.Steps = append(sc.Steps, scenario.Step{Says: "on nodes with different kubelet roots, with a DaemonSet for each root," + life, Prove: lifeWithTwoKubeletRoots})
	return []scenario.Scenario{sc}
}

func (u unusualNode) prove(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, undone := env.RunOnNode(ctx, u.node, "bash", "-ec", u.undo)
		err = errors.Join(err, undone, scenario.NoVolumesRemain(ctx, env))
	}()
	if _, err := env.RunOnNode(ctx, u.node, "bash", "-ec", u.prepare); err != nil {
		return err
	}
	if err := restartDriver(ctx, env, u.node); err != nil { // its checks at the start run on the node as it is now
		return err
	}
	return volumeLifeOn(ctx, env, u.node)
}

// lifeWithOtherKubeletRoot moves the root on all nodes: the chart has one value for all.
func lifeWithOtherKubeletRoot(ctx context.Context, env *scenario.Environment) (err error) {
	everywhere := func(ctx context.Context, script string) (all error) {
		for _, node := range []string{"node-1", "node-2", "node-3"} {
			_, err := env.RunOnNode(ctx, node, "bash", "-ec", script)
			all = errors.Join(all, err)
		}
		return all
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
		defer cancel()
		undone := everywhere(ctx, restoreKubeletRoot)
		err = errors.Join(err, undone, scenario.RestoreDriver(ctx, env), scenario.NoVolumesRemain(ctx, env))
	}()
	if err := everywhere(ctx, moveKubeletRoot); err != nil {
		return err
	}
	if err := env.ApplyDriverWith(ctx, "/var/lib/kubelet", otherKubeletRoot); err != nil {
		return err
	}
	if err := env.WaitDriverRolledOut(ctx); err != nil {
		return err
	}
	return volumeLifeOn(ctx, env, "node-3")
}

// lifeWithTwoKubeletRoots moves the root on one node, and runs a second DaemonSet there, as docs/howto/distributions.md does.
func lifeWithTwoKubeletRoots(ctx context.Context, env *scenario.Environment) (err error) {
	const (
		moved    = "node-3"
		label    = "kubelet-root"
		second   = "nodelvm-moved"
		selector = "kubernetes.io/os: linux\n"
		named    = "kind: DaemonSet\nmetadata:\n  name: nodelvm\n"
	)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
		defer cancel()
		_, undone := env.RunOnNode(ctx, moved, "bash", "-ec", restoreKubeletRoot)
		_, deleted := env.Kubectl(ctx, "", "delete", "daemonset", second, "-n", cluster.DriverNamespace, "--wait", "--ignore-not-found")
		_, unlabelled := env.Kubectl(ctx, "", "label", "nodes", "--all", label+"-")
		err = errors.Join(err, undone, deleted, unlabelled, scenario.RestoreDriver(ctx, env), scenario.NoVolumesRemain(ctx, env))
	}()
	if _, err := env.RunOnNode(ctx, moved, "bash", "-ec", moveKubeletRoot); err != nil {
		return err
	}
	for node, root := range map[string]string{"node-1": "usual", "node-2": "usual", moved: "other"} {
		if _, err := env.Kubectl(ctx, "", "label", "node", node, label+"="+root); err != nil {
			return err
		}
	}
	if err := env.ApplyDriverWith(ctx, selector, selector+"        "+label+": usual\n"); err != nil {
		return err
	}
	if err := env.ApplyDriverWith(ctx, selector, selector+"        "+label+": other\n", "/var/lib/kubelet", otherKubeletRoot,
		named, strings.Replace(named, "name: nodelvm", "name: "+second, 1)); err != nil {
		return err
	}
	_, rolled := env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, "daemonset/"+second)
	if err := errors.Join(rolled, env.WaitDriverRolledOut(ctx)); err != nil {
		return err
	}
	return errors.Join(volumeLifeOn(ctx, env, moved), volumeLifeOn(ctx, env, "node-1"))
}

const lifeContent = "written before the expansion"

// volumeLifeOn leaves nothing behind.
func volumeLifeOn(ctx context.Context, env *scenario.Environment, node string) error {
	if err := scenario.PodWithClaim("unusual", "thin", "64Mi", node)(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "unusual", node); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "unusual", "sh", "-c", "echo "+lifeContent+" > /data/word && sync"); err != nil {
		return err
	}
	if err := env.Expand(ctx, "unusual", "unusual", "128Mi"); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "unusual", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	if err := scenario.PodWithClaim("unusual", "thin", "128Mi", node)(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, "unusual", node); err != nil {
		return err
	}
	if word, err := env.ExecInPod(ctx, "unusual", "cat", "/data/word"); err != nil || word != lifeContent {
		return fmt.Errorf("the next pod reads %q: %w", word, err)
	}
	return scenario.InOrder(scenario.DoctorFindsNothing, scenario.DeleteEverything)(ctx, env)
}

// restartDriver replaces the driver's pod on a node.
func restartDriver(ctx context.Context, env *scenario.Environment, node string) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.DriverNamespace, "-l", "app.kubernetes.io/component=node",
		"--field-selector", "spec.nodeName="+node, "--wait"); err != nil {
		return err
	}
	return env.WaitDriverRolledOut(ctx)
}
