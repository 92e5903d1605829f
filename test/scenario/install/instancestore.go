package install

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	instanceGroup = "instance-store" // of the preset
	instanceOld   = "node-2"         // goes with its disks
	instanceNew   = "node-3"         // comes with blank ones
	instanceGrace = time.Minute      // of the preset
	instanceBack  = time.Minute      // how long the StatefulSet may take, once it can

	instanceMember  = "member-0" // of the StatefulSet of instance-store.yaml
	instanceContent = "written before the node was lost"
)

// instanceValues are what the lab needs beside the preset: its disks, two of them, and nodelvm-controller on the node that stays.
const instanceValues = `
volumeGroups:
  - name: instance-store
    devices:
      - paths: ["/dev/ubd[b-z]"]
deviceScanInterval: 10s
controller:
  nodeSelector: {kubernetes.io/hostname: node-1}
storageClasses:
  - name: instance-store
    reclaimPolicy: Delete
    onNodeLoss: release
    parameters:
      volumeGroup: instance-store
      layout: striped
      wipe: none
`

// InstanceStore is the scenario of a cloud whose nodes come and go with their disks. It ends with the driver as the manifest has it.
func InstanceStore() []scenario.Scenario {
	h := &helmStory{}
	return []scenario.Scenario{
		{Title: "A node with instance-store disks is replaced by one of another name", Steps: []scenario.Step{
			{Says: "all disks are blank, and " + instanceNew + " is not in the cluster yet", Prove: func(ctx context.Context, env *scenario.Environment) error {
				return errors.Join(h.blank(ctx, env), leaveCluster(ctx, env, instanceNew))
			}},
			{Says: "helm installs the chart with presets/instance-store.yaml, which makes a group of the blank disks of each node", Prove: instancePreset},
			{Says: "a StatefulSet writes to its striped volume on " + instanceOld, Prove: instanceWrites},
			{Says: instanceOld + " is terminated, and " + instanceNew + " joins: the StatefulSet is back on it within a minute", Prove: instanceReplaced},
			{Says: "the nodes' own groups and deploy/nodelvm.yaml are restored", Prove: h.instancesEnd},
		}},
	}
}

// leaveCluster cuts a node's power and deletes its Node object, as a cloud does when it terminates the machine.
func leaveCluster(ctx context.Context, env *scenario.Environment, node string) error {
	if err := env.Lab.PowerCut(node); err != nil {
		return err
	}
	return env.Client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{})
}

func instancePreset(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	preset := filepath.Join(top, "deploy", "chart", "nodelvm", "presets", "instance-store.yaml")
	if err := errors.Join(driverNamespace(ctx, env), chartWith(ctx, env, "install", instanceValues, "--values", preset)); err != nil {
		return err
	}
	for _, node := range []string{"node-1", instanceOld} {
		if err := instanceGrouped(ctx, env, node); err != nil {
			return err
		}
	}
	return nil
}

// instanceGrouped waits until a node's disks are in the group of the preset.
func instanceGrouped(ctx context.Context, env *scenario.Environment, node string) error {
	return cluster.Eventually(ctx, func() error {
		out, err := env.RunOnNode(ctx, node, "vgs", "--noheadings", "-o", "vg_name,pv_count")
		if got := strings.Fields(string(out)); err == nil && !slices.Equal(got, []string{instanceGroup, "2"}) {
			err = fmt.Errorf("%s has the groups %q", node, got)
		}
		return err
	})
}

// instanceWrites cordons node-1 until the end, so that only the new node can have the volume.
func instanceWrites(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "cordon", "node-1"); err != nil {
		return err
	}
	if err := scenario.Apply("instance-store.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, instanceMember, instanceOld); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, instanceMember, "sh", "-c", "echo '"+instanceContent+"' > /data/word && sync")
	return err
}

func instanceReplaced(ctx context.Context, env *scenario.Environment) error {
	lost := time.Now()
	if err := errors.Join(leaveCluster(ctx, env, instanceOld), env.Lab.Boot(ctx, instanceNew)); err != nil {
		return err
	}
	joined, err := nodeReadySince(ctx, env, instanceNew)
	if err != nil {
		return err
	}
	var pod *corev1.Pod
	err = cluster.Eventually(ctx, func() error {
		pod, err = env.WaitPodReady(ctx, instanceMember)
		if err == nil && pod.Spec.NodeName != instanceNew {
			err = fmt.Errorf("it is still on %s", pod.Spec.NodeName)
		}
		return err
	})
	if err != nil {
		return err
	}
	could := lost.Add(instanceGrace)
	if joined.After(could) {
		could = joined
	}
	took := time.Since(could)
	env.Reporter.Note("%s was lost; %.0f s later %s was Ready; the pod was Ready %.0f s after it could be", instanceOld, joined.Sub(lost).Seconds(), instanceNew, took.Seconds())
	if took > instanceBack {
		return fmt.Errorf("the pod took %s, more than %s", took, instanceBack)
	}
	if err := instanceGrouped(ctx, env, instanceNew); err != nil {
		return err
	}
	if words, err := env.ExecInPod(ctx, instanceMember, "ls", "/data"); err != nil || strings.Contains(words, "word") {
		return fmt.Errorf("its volume is not empty: %q, %w", words, err)
	}
	return nil
}

// nodeReadySince waits until a node is Ready, and returns since when.
func nodeReadySince(ctx context.Context, env *scenario.Environment, name string) (since time.Time, err error) {
	err = cluster.Eventually(ctx, func() error {
		node, err := env.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				since = c.LastTransitionTime.Time
				return nil
			}
		}
		return fmt.Errorf("node %s is not Ready", name)
	})
	return since, err
}

// instancesEnd boots the node that went, although a cloud never would: the other scenarios need it.
func (h *helmStory) instancesEnd(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.DeleteEverything, uninstallChart)(ctx, env); err != nil {
		return err
	}
	if err := env.Lab.Boot(ctx, instanceOld); err != nil {
		return err
	}
	if _, err := nodeReadySince(ctx, env, instanceOld); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "uncordon", "node-1"); err != nil {
		return err
	}
	for node, group := range h.groups {
		if _, err := env.RunOnNode(ctx, node, "sh", "-ec", "vgchange -qq -an "+instanceGroup+"; vgremove -qq -ff -y "+instanceGroup+"; rm -rf /var/lib/nodelvm/backup/"+instanceGroup); err != nil {
			return err
		}
		if _, err := env.RunOnNode(ctx, node, "sh", "-c", makeGroup, "sh", group); err != nil {
			return err
		}
	}
	return manifestInstalled(ctx, env)
}
