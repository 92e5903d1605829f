package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
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
}

// UnusualNodes runs a volume's life on nodes that lack what most have.
func UnusualNodes() []Scenario {
	sc := Scenario{Title: "A volume's life on unusual nodes", Steps: []Step{{Says: "storage classes are created", Prove: plantedClasses}}}
	for _, u := range unusualNodes {
		sc.Steps = append(sc.Steps, Step{Says: "on a node " + u.what + " a thin volume is created, written, expanded, read by another pod, and deleted", Prove: u.prove})
	}
	return []Scenario{sc}
}

func (u unusualNode) prove(ctx context.Context, env *Environment) (err error) {
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, undone := env.RunOnNode(ctx, u.node, "bash", "-ec", u.undo)
		err = errors.Join(err, undone, noVolumesRemain(ctx, env))
	}()
	if _, err := env.RunOnNode(ctx, u.node, "bash", "-ec", u.prepare); err != nil {
		return err
	}
	if err := env.restartDriver(ctx, u.node); err != nil { // its checks at the start run on the node as it is now
		return err
	}
	if err := podOf("unusual", "thin", "64Mi", u.node)(ctx, env); err != nil {
		return err
	}
	if err := env.runsOn(ctx, "unusual", u.node); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, "unusual", "sh", "-c", "echo "+lostContent+" > /data/word && sync"); err != nil {
		return err
	}
	if err := env.grow(ctx, "unusual", "unusual", "128Mi"); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "unusual", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	if err := podOf("unusual", "thin", "128Mi", u.node)(ctx, env); err != nil {
		return err
	}
	if err := env.runsOn(ctx, "unusual", u.node); err != nil {
		return err
	}
	if word, err := env.ExecInPod(ctx, "unusual", "cat", "/data/word"); err != nil || word != lostContent {
		return fmt.Errorf("the next pod reads %q: %w", word, err)
	}
	if err := doctorIsContent(ctx, env); err != nil {
		return err
	}
	return deleteEverything(ctx, env)
}

// restartDriver replaces the driver's pod on a node.
func (env *Environment) restartDriver(ctx context.Context, node string) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.DriverNamespace, "-l", "app.kubernetes.io/component=node",
		"--field-selector", "spec.nodeName="+node, "--wait"); err != nil {
		return err
	}
	return env.driverRolledOut(ctx)
}
