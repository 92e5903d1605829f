package nodeloss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	lostNode    = scenario.BigNode
	lostMember  = "member-0"
	lostClaim   = "data-member-0"
	adopted     = "old-data"
	lostContent = "written before the node was lost"
)

// Scenarios is the scenario of a node that is lost, and comes back. It begins and ends with an empty cluster.
func Scenarios() []scenario.Scenario {
	l := &loss{}
	return []scenario.Scenario{
		{Title: "A node is lost, and its StatefulSet continues on another node", Steps: []scenario.Step{
			{Says: "nodelvm-controller is installed as shipped, but for a grace period of 15 s, on node-1", Prove: installController},
			{Says: "a StatefulSet of a class that says release writes to its volume on " + lostNode, Prove: memberWrites},
			{Says: "the scheduler finds no capacity on a node that only an autoscaler's template describes", Prove: imaginedHasNoRoom},
			{Says: "the power of " + lostNode + " is cut and its Node object deleted: events on the claim say so", Prove: l.loseNode},
			{Says: "the StatefulSet starts with a new volume on another node, and each step is an event", Prove: l.startsAfresh},
			{Says: "the capacity of " + lostNode + " is not published any more", Prove: noCapacityOfLost},
		}},
		{Title: "The node comes back, and nothing on it is lost", Steps: []scenario.Step{
			{Says: lostNode + " is booted, and its driver is ready", Prove: nodeComesBack},
			{Says: "its old volume is reported as abandoned, and kept", Prove: l.reportedAsAbandoned},
			{Says: "nodelvm adopt prints it as a claim, which a pod uses with the old data", Prove: l.adoptedWithData},
			{Says: "nothing is left behind", Prove: lostIsCleared},
		}},
	}
}

// ForDemo returns the same in short: a scenario that loses the node, and one that brings it back.
func ForDemo() (dies, returns scenario.Scenario) {
	l := &loss{}
	dies = scenario.Scenario{Title: "A node dies, and its claim is released", Steps: []scenario.Step{
		{Says: "nodelvm-controller is installed as shipped, but for a grace period of 15 s, on node-1", Prove: installController},
		{Says: "a StatefulSet of a class that says release writes to its volume on " + lostNode, Prove: memberWrites},
		{Says: "the power of " + lostNode + " is cut and its Node object deleted: events on the claim say so", Prove: l.loseNode},
		{Says: "the StatefulSet starts with a new volume on another node, and each step is an event", Prove: l.startsAfresh},
	}}
	returns = scenario.Scenario{Title: "The node returns with its data", Steps: []scenario.Step{
		{Says: lostNode + " is booted, and its driver is ready", Prove: nodeComesBack},
		{Says: "nodelvm adopt makes a claim of its old volume, and a pod reads the old data", Prove: l.adoptedWithData},
		{Says: "no volume is left", Prove: lostIsCleared},
	}}
	return dies, returns
}

// loss is what one step leaves for a later one to know.
type loss struct{ volume cluster.Volume } // the one that was on the node

func installController(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, "deploy", "controller.yaml"))
	if err != nil {
		return err
	}
	manifest := strings.Replace(string(text), "--grace-period=10m", "--grace-period=15s", 1)
	const linux = "        kubernetes.io/os: linux\n"
	manifest = strings.Replace(manifest, linux, linux+"        kubernetes.io/hostname: node-1\n", 1)
	if _, err := env.Kubectl(ctx, manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, "deployment/nodelvm-controller")
	return err
}

// memberWrites has the pod wait for the node that it prefers: the first to publish its capacity of a new class may be
// another.
func memberWrites(ctx context.Context, env *scenario.Environment) error {
	return env.Cordoned(ctx, []string{"-l", "kubernetes.io/hostname!=" + lostNode}, func() error {
		if err := scenario.Apply("lost.yaml")(ctx, env); err != nil {
			return err
		}
		if err := env.RunsOn(ctx, lostMember, lostNode); err != nil {
			return err
		}
		_, err := env.ExecInPod(ctx, lostMember, "sh", "-c", "echo '"+lostContent+"' > /data/word && sync")
		return err
	})
}

func imaginedHasNoRoom(ctx context.Context, env *scenario.Environment) (err error) {
	defer func() { // in any case: a driver that waits for that node is never ready
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		for _, args := range [][]string{{"pod", "-n", cluster.Namespace, "imagined", "--force"}, {"pvc", "-n", cluster.Namespace, "imagined"}, {"node", "template"}} {
			_, deleted := env.Kubectl(ctx, "", append([]string{"delete", "--ignore-not-found"}, args...)...)
			err = errors.Join(err, deleted)
		}
	}()
	if err := scenario.Apply("lost-template.yaml")(ctx, env); err != nil {
		return err
	}
	return env.WaitEvent(ctx, "imagined", "did not have enough free storage")
}

func (l *loss) loseNode(ctx context.Context, env *scenario.Environment) error {
	v, err := env.VolumeOf(ctx, lostClaim)
	if err != nil {
		return err
	}
	l.volume = v
	if err := env.Lab.PowerCut(lostNode); err != nil {
		return err
	}
	if err := env.Client.CoreV1().Nodes().Delete(ctx, lostNode, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return env.WaitEvent(ctx, lostClaim, lostNode+" is no longer in the cluster")
}

func (l *loss) startsAfresh(ctx context.Context, env *scenario.Environment) error {
	began := time.Now()
	err := cluster.Eventually(ctx, func() error {
		v, err := env.VolumeOf(ctx, lostClaim)
		if err == nil && v.Lv == l.volume.Lv {
			err = fmt.Errorf("claim %s still has its volume on %s", lostClaim, lostNode)
		}
		return err
	})
	if err != nil {
		return err
	}
	pod, err := env.WaitPodReady(ctx, lostMember)
	if err != nil {
		return err
	}
	env.Reporter.Note("Ready on %s %.0f s after the event on its claim", pod.Spec.NodeName, time.Since(began).Seconds())
	if pod.Spec.NodeName == lostNode {
		return fmt.Errorf("it runs on %s", lostNode)
	}
	if word, err := env.ExecInPod(ctx, lostMember, "ls", "/data"); err != nil || strings.Contains(word, "word") {
		return fmt.Errorf("its volume is not empty: %q, %w", word, err)
	}
	if err := env.WaitEvent(ctx, lostClaim, "deletes this claim, as storage class replicated demands"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		_, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, l.volume.Lv, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("PersistentVolume %s is still there (%w)", l.volume.Lv, err)
	})
}

func noCapacityOfLost(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		objects, err := env.Client.StorageV1().CSIStorageCapacities("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, c := range objects.Items {
			if c.NodeTopology.MatchLabels[cluster.TopologyKey] == lostNode {
				return fmt.Errorf("%s is still there", c.Name)
			}
		}
		return nil
	})
}

func nodeComesBack(ctx context.Context, env *scenario.Environment) error {
	return boot(ctx, env, lostNode)
}

// boot boots a node that was lost, and waits until its driver answers.
func boot(ctx context.Context, env *scenario.Environment, node string) error {
	if err := env.Lab.Boot(ctx, node); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		out, err := onNode(ctx, env, node, "nodelvm", "version")
		if err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
}

// onLost runs a command in the driver's container on the node that was lost.
func onLost(ctx context.Context, env *scenario.Environment, argv ...string) (string, error) {
	return onNode(ctx, env, lostNode, argv...)
}

func onNode(ctx context.Context, env *scenario.Environment, node string, argv ...string) (string, error) {
	pods, err := env.Client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/component=node", FieldSelector: "spec.nodeName=" + node + ",status.phase=Running",
	})
	if err != nil {
		return "", err
	}
	if len(pods.Items) != 1 {
		return "", fmt.Errorf("%d driver pods run on %s", len(pods.Items), node)
	}
	return env.Kubectl(ctx, "", append([]string{"exec", "-n", cluster.DriverNamespace, pods.Items[0].Name, "-c", "nodelvm", "--"}, argv...)...)
}

func (l *loss) reportedAsAbandoned(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		out, err := onLost(ctx, env, "nodelvm", "orphans", "-o", "json")
		if err != nil {
			return err
		}
		var rows []struct{ Reason, VolumeGroup, LV, FormerClaim, Message string }
		if err := json.Unmarshal([]byte(out), &rows); err != nil {
			return err
		}
		if len(rows) != 1 || rows[0].Reason != "abandoned" || rows[0].LV != l.volume.Lv || rows[0].VolumeGroup != l.volume.Group {
			return fmt.Errorf("it prints %s", out)
		}
		env.Reporter.Note("%s/%s, once of %s: %s", rows[0].VolumeGroup, rows[0].LV, rows[0].FormerClaim, rows[0].Message)
		return nil
	})
}

func (l *loss) adoptedWithData(ctx context.Context, env *scenario.Environment) error {
	text, err := onLost(ctx, env, "nodelvm", "adopt", l.volume.Group+"/"+l.volume.Lv, "--claim", cluster.Namespace+"/"+adopted, "--storage-class", "replicated", "--reclaim-policy", "Delete")
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, text, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := scenario.Apply("lost-adopter.yaml")(ctx, env); err != nil {
		return err
	}
	pod, err := env.WaitPodReady(ctx, "adopter")
	if err != nil {
		return err
	}
	word, err := env.ExecInPod(ctx, "adopter", "cat", "/data/word")
	if err != nil || word != lostContent || pod.Spec.NodeName != lostNode {
		return fmt.Errorf("on %s it reads %q: %w", pod.Spec.NodeName, word, err)
	}
	out, err := onLost(ctx, env, "nodelvm", "orphans")
	if err != nil || !strings.Contains(out, "No orphans") {
		return fmt.Errorf("orphans: %s: %w", out, err)
	}
	return nil
}

func lostIsCleared(ctx context.Context, env *scenario.Environment) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "-f", filepath.Join(top, "deploy", "controller.yaml")); err != nil {
		return err
	}
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}
