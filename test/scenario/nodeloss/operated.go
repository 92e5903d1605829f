package nodeloss

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Operated is the scenario of an operator whose instances lose claims, nodes, and nodes again. It begins and ends with an empty cluster.
func Operated(losses int) []scenario.Scenario {
	d := &database{}
	sc := scenario.Scenario{Title: "An operator's database loses claims and nodes", Steps: []scenario.Step{
		{Says: "nodelvm-controller is installed as shipped, but for a grace period of 15 s, on node-1", Prove: installController},
		{Says: fmt.Sprintf("an operator creates %d instances, each with three volumes on a node of its own", instances), Prove: d.begin},
		{Says: "all claims of an instance are deleted, then its pod: a new one has new volumes", Prove: d.deleteReplica},
		{Says: "a node with the primary, whose budget forbids its eviction, is drained: its pod returns to its volumes", Prove: d.drainPrimary},
	}}
	for i := range losses {
		sc.Steps = append(sc.Steps, scenario.Step{
			Says: fmt.Sprintf("loss %d of a node: another node has the instance, and the lost one boots again", i+1), Prove: d.loseNode,
		})
	}
	sc.Steps = append(sc.Steps,
		scenario.Step{Says: "kubectl nodelvm doctor finds nothing but what the lost nodes kept", Prove: scenario.InOrder(d.removeAbandoned, scenario.DoctorFindsNothing)},
		scenario.Step{Says: "nothing is left behind", Prove: d.end})
	return []scenario.Scenario{sc}
}

// database is what one step leaves for a later one to know.
type database struct{ stop func() error }

func (d *database) begin(ctx context.Context, env *scenario.Environment) (err error) {
	if err := scenario.Apply("operated.yaml")(ctx, env); err != nil {
		return err
	}
	if d.stop, err = startOperator(ctx, env); err != nil {
		return err
	}
	_, err = d.settled(ctx, env)
	return err
}

// instance is one whose pod is Ready and whose claims are bound to volumes of the pod's node.
type instance struct {
	pod     *corev1.Pod
	volumes string // names of its PersistentVolumes
}

// settled waits until all instances are complete, and returns them by serial number.
func (d *database) settled(ctx context.Context, env *scenario.Environment) (found map[string]instance, err error) {
	err = cluster.Eventually(ctx, func() (err error) {
		found, err = d.look(ctx, env)
		return err
	})
	return found, err
}

func (d *database) look(ctx context.Context, env *scenario.Environment) (map[string]instance, error) {
	pods, err := env.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: ownLabels.String()})
	if err != nil {
		return nil, err
	}
	found := map[string]instance{}
	for _, pod := range pods.Items {
		if !isReady(&pod) {
			return nil, fmt.Errorf("pod %s is %s%s", pod.Name, pod.Status.Phase, env.LastEvents(ctx, pod.Name))
		}
		var volumes []string
		for _, v := range pod.Spec.Volumes {
			bound, err := env.BoundTo(ctx, v.PersistentVolumeClaim.ClaimName)
			if err != nil {
				return nil, err
			}
			if bound.Node != pod.Spec.NodeName {
				return nil, fmt.Errorf("pod %s is on %s, and its claim %s on %s", pod.Name, pod.Spec.NodeName, v.PersistentVolumeClaim.ClaimName, bound.Node)
			}
			volumes = append(volumes, bound.PV)
		}
		found[pod.Labels[serialLabel]] = instance{&pod, strings.Join(volumes, " ")}
	}
	if len(found) != instances {
		return nil, fmt.Errorf("%d instances are complete, want %d: %v", len(found), instances, slices.Sorted(maps.Keys(found)))
	}
	return found, nil
}

// pick returns an instance of those that ok accepts.
func pick(all map[string]instance, ok func(*corev1.Pod) bool) (instance, error) {
	for _, serial := range slices.Sorted(maps.Keys(all)) {
		if ok(all[serial].pod) {
			return all[serial], nil
		}
	}
	return instance{}, errors.New("no instance is like that")
}

func isPrimary(pod *corev1.Pod) bool { return pod.Labels[roleLabel] == primary }

// deleteReplica does what the guide on removing a node says.
func (d *database) deleteReplica(ctx context.Context, env *scenario.Environment) error {
	before, err := d.settled(ctx, env)
	if err != nil {
		return err
	}
	old, err := pick(before, func(pod *corev1.Pod) bool { return !isPrimary(pod) })
	if err != nil {
		return err
	}
	args := []string{"delete", "pvc", "-n", cluster.Namespace, "--wait=false"}
	for _, v := range old.pod.Spec.Volumes {
		args = append(args, v.PersistentVolumeClaim.ClaimName)
	}
	if _, err := env.Kubectl(ctx, "", args...); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.Namespace, old.pod.Name); err != nil {
		return err
	}
	return d.replaced(ctx, env, before, old)
}

// replaced waits until another instance stands for old, and the others have kept their volumes.
func (d *database) replaced(ctx context.Context, env *scenario.Environment, before map[string]instance, old instance) error {
	gone := old.pod.Labels[serialLabel]
	after, err := d.settledWithout(ctx, env, gone)
	if err != nil {
		return err
	}
	for serial, was := range before {
		if serial != gone && after[serial].volumes != was.volumes {
			return fmt.Errorf("instance %s had the volumes %s, and has %q", serial, was.volumes, after[serial].volumes)
		}
	}
	return nil
}

func (d *database) settledWithout(ctx context.Context, env *scenario.Environment, gone string) (found map[string]instance, err error) {
	err = cluster.Eventually(ctx, func() (err error) {
		if found, err = d.look(ctx, env); err == nil && found[gone].pod != nil {
			err = fmt.Errorf("instance %s is still there", gone)
		}
		return err
	})
	return found, err
}

func (d *database) drainPrimary(ctx context.Context, env *scenario.Environment) (err error) {
	before, err := d.settled(ctx, env)
	if err != nil {
		return err
	}
	old, err := pick(before, isPrimary)
	if err != nil {
		return err
	}
	node := old.pod.Spec.NodeName
	defer func() {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, uncordoned := env.Kubectl(ctx, "", "uncordon", node)
		err = errors.Join(err, uncordoned)
	}()
	if _, err := env.Kubectl(ctx, "", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=3m"); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "uncordon", node); err != nil {
		return err
	}
	after, err := d.settled(ctx, env)
	if err != nil {
		return err
	}
	for serial, was := range before {
		if after[serial].volumes != was.volumes {
			return fmt.Errorf("instance %s had the volumes %s, and has %q", serial, was.volumes, after[serial].volumes)
		}
	}
	return nil
}

func (d *database) loseNode(ctx context.Context, env *scenario.Environment) error {
	before, err := d.settled(ctx, env)
	if err != nil {
		return err
	}
	old, err := pick(before, func(pod *corev1.Pod) bool { return pod.Spec.NodeName != scenario.FirstNode }) // there nodelvm-controller runs
	if err != nil {
		return err
	}
	node := old.pod.Spec.NodeName
	if err := env.Lab.PowerCut(node); err != nil {
		return err
	}
	if err := env.Client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil {
		return err
	}
	began := time.Now()
	if err := d.replaced(ctx, env, before, old); err != nil {
		return err
	}
	env.Reporter.Note("the instance of %s is complete elsewhere %.0f s after the deletion of the Node object", node, time.Since(began).Seconds())
	return boot(ctx, env, node)
}

// removeAbandoned removes the volumes that no PersistentVolume names, and lets the nodes remove those of a Released one: nodelvm-controller keeps
// it if its node returns early.
func (d *database) removeAbandoned(ctx context.Context, env *scenario.Environment) error {
	pvs, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, pv := range pvs.Items {
		named[pv.Name] = true
		if pv.Status.Phase == corev1.VolumeReleased {
			if _, err := env.Kubectl(ctx, "", "patch", "pv", pv.Name, "--type=merge", "-p", `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`); err != nil {
				return err
			}
		}
	}
	for _, node := range env.Lab.NodeNames() {
		rows, err := env.LogicalVolumes(ctx, node)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if strings.HasPrefix(row.Name, "pvc-") && !named[row.Name] {
				if _, err := env.RunOnNode(ctx, node, "lvremove", "-fy", row.Group+"/"+row.Name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (d *database) end(ctx context.Context, env *scenario.Environment) error {
	if err := d.stop(); err != nil {
		return err
	}
	for _, object := range []string{"poddisruptionbudget/db-primary", "configmap/db"} {
		if _, err := env.Kubectl(ctx, "", "delete", "-n", cluster.Namespace, object); err != nil {
			return err
		}
	}
	return lostIsCleared(ctx, env)
}
