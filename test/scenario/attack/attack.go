package attack

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const attackedNode = "node-1"

// Scenarios returns the attacks of a tenant with a raw block volume and a pod without privilege, and those of a thief with one node's token. The
// tenant writes on the volume what the node could take for its own, or would have to parse. The volume is this driver's or another one's.
func Scenarios() []scenario.Scenario {
	return []scenario.Scenario{attack(forgeries()), attackThenReboot(), attackWithImages(), attackFromForeignVolume(), attackWithToken()}
}

// Sample returns the attacks that most often find a mistake: two of the forgeries, another driver's volume, and the thief.
func Sample() []scenario.Scenario {
	return []scenario.Scenario{attack([]forgery{tagged, emptied}), attackFromForeignVolume(), attackWithToken()}
}

func attack(all []forgery) scenario.Scenario {
	run := &nodeRun{}
	steps := []scenario.Step{
		{Says: "a pod without privilege on " + attackedNode + " has a raw block volume of the class", Prove: attackerRuns},
		{Says: "the run of the node and of its driver is noted", Prove: run.note},
	}
	for _, f := range all {
		steps = append(steps, scenario.Step{Says: "the pod writes " + f.name + ": the published capacity stays that of the node's disks", Limit: 2 * time.Minute,
			Prove: func(ctx context.Context, env *scenario.Environment) error { return forge(ctx, env, "attacker", f) }})
		if f.event != "" {
			steps = append(steps, scenario.Step{Says: "an event on the claim names the volume, and says that it begins like " + f.event, Limit: 2 * time.Minute,
				Prove: func(ctx context.Context, env *scenario.Environment) error {
					return signatureReported(ctx, env, "attacker", f.event)
				}})
		}
		if f.lvm() {
			steps = append(steps, scenario.Step{Says: "the next tenant's volume is on the node's disks, and the pod's device shows nothing of it", Limit: 3 * time.Minute, Prove: victimIsSafe})
		}
	}
	return scenario.Scenario{Title: "A tenant attacks from a raw block volume", Steps: append(steps,
		scenario.Step{Says: "another tenant's pod runs, and the attacker's pod and volume can be deleted at once", Limit: 2 * time.Minute, Prove: attackerLeaves},
		scenario.Step{Says: "neither the node nor its driver has been restarted", Prove: run.goesOn},
		scenario.Step{Says: "everything is deleted", Prove: attackIsOver},
	)}
}

func attackThenReboot() scenario.Scenario {
	return scenario.Scenario{Title: "The node reboots with forged groups on a raw block volume", Steps: []scenario.Step{
		{Says: "a tenant's pod writes data", Prove: func(ctx context.Context, env *scenario.Environment) error { return victimRuns(ctx, env) }},
		{Says: "an attacker's pod writes " + emptied.name, Prove: func(ctx context.Context, env *scenario.Environment) error {
			if err := attackerRuns(ctx, env); err != nil {
				return err
			}
			return forge(ctx, env, "attacker", emptied)
		}},
		{Says: "the tenant's pod ends; the node's power is cut, and it boots with the attacker's pod alone", Prove: rebootWithAttacker},
		{Says: "the published capacity stays that of the node's disks", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return publishedIsReal(ctx, env, 3*time.Second)
		}},
		{Says: "the tenant's pod is created again and finds its data", Prove: victimIsBack},
		{Says: "everything is deleted", Prove: attackIsOver},
	}}
}

// OnDisk returns the steps in which a pod on the attacked node writes forgeries over the beginning of its raw block volume, which is another storage driver's
// disk. After each, the next tenant's pod runs. In the end the disk has the node's group, empty.
func OnDisk(pod string) (steps []scenario.Step) {
	all := slices.DeleteFunc(forgeries(), func(f forgery) bool { // file systems concern the host alone
		return f.name == emptied.name || strings.Contains(f.name, "file system") || strings.Contains(f.name, "random")
	})
	for _, f := range append(all, emptied) {
		steps = append(steps, scenario.Step{
			Says: "the pod writes " + f.name + " on its disk: the published capacity stays, and another tenant's volume is on the node's own disks",
			Prove: func(ctx context.Context, env *scenario.Environment) error {
				if err := forge(ctx, env, pod, f); err != nil {
					return err
				}
				return NextTenant(ctx, env)
			}})
	}
	return steps
}

func attackerRuns(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("classes.yaml")(ctx, env); err != nil {
		return err
	}
	if err := rawPod(ctx, env, "attacker", scenario.FastClass, "128Mi"); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 0)
}

// rawPod starts a pod without privilege that has a raw block volume.
func rawPod(ctx context.Context, env *scenario.Environment, name, class, size string) error {
	if err := env.ApplyWith(ctx, "attack.yaml", "NAME", name, "CLASS", class, "SIZE", size); err != nil {
		return err
	}
	_, err := env.WaitPodReady(ctx, name)
	return err
}

// forge has a pod write the content over the beginning of its volume.
func forge(ctx context.Context, env *scenario.Environment, pod string, f forgery) error {
	encoded, err := env.RunOnNode(ctx, attackedNode, "sh", "-c", `dir=$(mktemp -d) && cd $dir && { `+f.script+"\n} | base64 -w0; cd / && rm -r $dir")
	if err != nil {
		return err
	}
	content, err := base64.StdEncoding.DecodeString(string(encoded))
	if err == nil && f.change != nil {
		content, err = f.change(content)
	}
	if err != nil {
		return fmt.Errorf("make %s: %w", f.name, err)
	}
	if len(content) < 1<<20 {
		return fmt.Errorf("%s has %d bytes only", f.name, len(content))
	}
	size := strconv.Itoa(len(content))
	_, err = env.Kubectl(ctx, base64.StdEncoding.EncodeToString(content), "exec", "-i", "-n", cluster.Namespace, pod, "--",
		"sh", "-ec", "base64 -d | dd of=/dev/raw-volume bs=1M conv=fsync 2>/dev/null; [ $(head -c "+size+" /dev/raw-volume | wc -c) = "+size+" ]")
	if err != nil {
		return err
	}
	if _, err := env.RunOnNode(ctx, attackedNode, "udevadm", "settle"); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 3*time.Second)
}

// signatureReported waits until the event on a claim calls its volume what was written last.
func signatureReported(ctx context.Context, env *scenario.Environment, claim, what string) error {
	v, err := env.VolumeOf(ctx, claim)
	if err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		events, err := env.Client.CoreV1().Events(cluster.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=SignatureFound,involvedObject.name=" + claim})
		if err != nil {
			return err
		}
		for _, e := range events.Items { // also those of earlier claims of the name
			if strings.Contains(e.Message, v.Group+"/"+v.Lv+" (") && strings.Contains(e.Message, "begins like "+what+",") {
				return nil
			}
		}
		return fmt.Errorf("no event on %s says that %s/%s begins like %s%s", claim, v.Group, v.Lv, what, env.LastEvents(ctx, claim))
	})
}

// publishedIsReal waits until the node's published capacity equals the free extents of the group on its disks, and then
// watches that for a while: csi-provisioner asks for the capacity each second.
func publishedIsReal(ctx context.Context, env *scenario.Environment, watch time.Duration) error {
	if err := cluster.Eventually(ctx, func() error { return publishedEqualsDisks(ctx, env) }); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < watch; {
		if err := publishedEqualsDisks(ctx, env); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(300 * time.Millisecond):
		}
	}
	return nil
}

func publishedEqualsDisks(ctx context.Context, env *scenario.Environment) error {
	onDisks := []string{"--devices", nodeDisks}
	groups, err := env.VolumeGroups(ctx, attackedNode, onDisks...)
	if err != nil {
		return err
	}
	if len(groups) != 1 || groups[0].Name != nodeGroup {
		return fmt.Errorf("the node's disks hold %v, want %s alone", groups, nodeGroup)
	}
	_, err = env.CheckCapacityIsFree(ctx, scenario.FastClass, attackedNode, onDisks...)
	return err
}

func attackerLeaves(ctx context.Context, env *scenario.Environment) error {
	if err := forge(ctx, env, "attacker", tagged); err != nil {
		return err
	}
	if err := victimRuns(ctx, env); err != nil {
		return err
	}
	began := time.Now()
	if _, err := env.Kubectl(ctx, "", "delete", "pod/attacker", "pvc/attacker", "-n", cluster.Namespace, "--wait", "--timeout=60s"); err != nil {
		return err
	}
	env.Reporter.Note("the attacker's pod and claim were gone after %.0f s", time.Since(began).Seconds())
	return nil
}

func rebootWithAttacker(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod/victim", "-n", cluster.Namespace, "--wait"); err != nil {
		return err
	}
	if _, err := env.RunOnNode(ctx, attackedNode, "sync"); err != nil {
		return err
	}
	if err := env.Lab.PowerCut(attackedNode); err != nil {
		return err
	}
	if err := env.Lab.Boot(ctx, attackedNode); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		if err := env.CheckRestarted(ctx, "attacker"); err != nil {
			return err
		}
		_, err := env.ExecInPod(ctx, "attacker", "head", "-c", "1", "/dev/raw-volume")
		return err
	})
}

func attackIsOver(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "volumesnapshot", "-n", cluster.Namespace, "--all", "--wait"); err != nil {
		return err
	}
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return publishedIsReal(ctx, env, 0)
}
