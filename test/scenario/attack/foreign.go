package attack

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	foreignDisk  = "/var/lib/foreign-disk"                               // the file of a disk that another storage driver attaches
	otherPlugins = "/var/lib/kubelet/plugins/other.csi.example"          // of that driver
	localPlugin  = "/var/lib/kubelet/plugins/kubernetes.io~local-volume" // the kubelet's own for local volumes
	adminsGroup  = "vg-admin"
)

// attackFromForeignVolume is a tenant whose raw block volume is another storage driver's: for the node it is a disk.
func attackFromForeignVolume() scenario.Scenario {
	foreign, run := &foreignVolume{}, &nodeRun{}
	step := func(says string, prove func(context.Context, *scenario.Environment) error) scenario.Step {
		return scenario.Step{Says: says, Limit: 3 * time.Minute, Prove: prove}
	}
	return scenario.Scenario{Title: "A tenant attacks from a raw block volume of another storage driver", Steps: []scenario.Step{
		step("another storage driver attaches a disk to "+attackedNode+" for a pod without privilege", foreign.attached),
		step("the run of the node and of its driver is noted", run.note),
		step("the pod writes "+tagged.name+": the published capacity stays that of the node's disks", foreign.writes(tagged)),
		step("an admin who accepts the disk by mistake is refused, because it is a volume of a pod", foreign.isRefused),
		step("the pod writes "+emptied.name+": the published capacity stays that of the node's disks", foreign.writes(emptied)),
		step("the pod ends, and the disk stays attached: kubectl nodelvm disks says that it is not accepted, and the capacity stays", foreign.isReported),
		step("another tenant's volume is on the node's disks", victimRunsBeside),
		step("neither the node nor its driver has been restarted", run.goesOn),
		step("an admin creates a group on the disk: the driver ignores it until the admin accepts the disk", foreign.isAccepted),
		step("the admin removes the group and forgets the disk; everything is deleted", foreign.leaves),
	}}
}

// foreignVolume is the disk.
type foreignVolume struct{ device string }

func (f *foreignVolume) attached(ctx context.Context, env *scenario.Environment) error {
	out, err := env.RunOnNode(ctx, attackedNode, "sh", "-ec", "mkdir -p "+otherPlugins+" && truncate -s 100M "+foreignDisk+" && losetup -f --show "+foreignDisk)
	if err != nil {
		return err
	}
	f.device = strings.TrimSpace(string(out))
	if err := scenario.Apply("classes.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "attack-foreign.yaml", "DEVICE", f.device); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, "foreign"); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 0)
}

func (f *foreignVolume) writes(content forgery) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		if err := forge(ctx, env, "foreign", content); err != nil {
			return err
		}
		head, err := env.RunOnNode(ctx, attackedNode, "head", "-c", "520", f.device)
		if err == nil && !strings.HasSuffix(string(head), "LABELONE") {
			err = fmt.Errorf("what the pod wrote is not on %s", f.device)
		}
		return err
	}
}

func (f *foreignVolume) isRefused(ctx context.Context, env *scenario.Environment) error {
	said, err := f.disks(ctx, env, "accept", f.device)
	if err == nil || !strings.Contains(err.Error(), "volume of a pod") {
		return fmt.Errorf("nodelvm disks accept said %q (%v)", said, err)
	}
	return nil
}

func (f *foreignVolume) isReported(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod/foreign", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	if err := f.isListed(ctx, env, "not accepted"); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 3*time.Second)
}

// isListed waits until kubectl nodelvm disks has the disk in a line with these words.
func (f *foreignVolume) isListed(ctx context.Context, env *scenario.Environment, words string) error {
	return cluster.Eventually(ctx, func() error {
		said, err := env.Shell(ctx, "kubectl nodelvm disks")
		if err != nil {
			return err
		}
		for line := range strings.Lines(said) {
			if strings.Contains(line, attackedNode+" ") && strings.Contains(line, f.device+" ") && strings.Contains(line, words) {
				return nil
			}
		}
		return fmt.Errorf("no line has %s and %q:\n%s", f.device, words, said)
	})
}

// isAccepted: the admin has got the disk from the other driver, which does not need it any more.
func (f *foreignVolume) isAccepted(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.RunOnNode(ctx, attackedNode, "sh", "-ec", "head -c 4M /dev/zero > "+f.device+"; vgcreate -qq --devices "+f.device+" "+adminsGroup+" "+f.device); err != nil {
		return err
	}
	if err := f.isListed(ctx, env, "not accepted"); err != nil {
		return err
	}
	if _, err := f.disks(ctx, env, "accept", f.device); err != nil {
		return err
	}
	return f.isListed(ctx, env, adminsGroup)
}

func (f *foreignVolume) leaves(ctx context.Context, env *scenario.Environment) error {
	pv, err := env.RunOnNode(ctx, attackedNode, "pvs", "--devices", f.device, "--noheadings", "-o", "pv_uuid", f.device)
	if err != nil {
		return err
	}
	if _, err := env.RunOnNode(ctx, attackedNode, "vgremove", "-qq", "--devices", f.device, adminsGroup); err != nil {
		return err
	}
	if _, err := f.disks(ctx, env, "forget", strings.TrimSpace(string(pv))); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pvc/foreign", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pv/foreign", "--wait"); err != nil {
		return err
	}
	if _, err := env.RunOnNode(ctx, attackedNode, "sh", "-ec", "losetup -d "+f.device+" && rm -r "+foreignDisk+" "+otherPlugins+" && rm -rf "+localPlugin); err != nil {
		return err
	}
	return attackIsOver(ctx, env)
}

// disks runs nodelvm disks in the driver's container on the node.
func (f *foreignVolume) disks(ctx context.Context, env *scenario.Environment, argv ...string) (string, error) {
	pod, err := env.DriverPodOn(ctx, attackedNode)
	if err != nil {
		return "", err
	}
	return env.Kubectl(ctx, "", append([]string{"exec", "-n", cluster.DriverNamespace, pod.Name, "-c", "nodelvm", "--", "nodelvm", "disks"}, argv...)...)
}
