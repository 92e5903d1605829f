package moves

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// drains is what one step leaves for the next to know.
type drains struct {
	content map[string]string // by set
	nodes   map[string]string // of the pods, by set
	former  string            // UID of the node that is replaced
}

// Drains returns the scenario of a node whose volumes move away before it is replaced.
func Drains() []scenario.Scenario {
	d := &drains{content: map[string]string{}, nodes: map[string]string{}}
	return []scenario.Scenario{{Title: "A node with volumes of every kind is drained and replaced", Steps: []scenario.Step{
		{Says: "the driver runs with move.enabled, and copies 16 MiB a second", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return withMoves(ctx, env, "move.rate=16Mi")
		}},
		{Says: fmt.Sprintf("five pods on %s write to %d volumes: linear, striped, raid1, thin, raw, encrypted, with ext4, xfs and btrfs", here, 2*len(sets)), Prove: d.start},
		{Says: "the plan of kubectl nodelvm drain names each claim with its target, and the snapshot that stays", Prove: d.planned},
		{Says: "the volumes are drained while drivers are killed and the API server restarts: all pods run elsewhere, with their data", Limit: 20 * time.Minute, Prove: d.drained},
		{Says: "when the snapshot and the former copies are deleted, drain-check finds nothing", Prove: d.emptied},
		{Says: "the Node object is deleted, and an empty machine takes the node's place", Prove: d.replaced},
		{Says: "the volumes move back, while the power of " + here + " is cut: all pods run there with their data", Limit: 20 * time.Minute, Prove: d.returned},
		{Says: "when the former copies are deleted, nothing of the moves is left on any node or object", Prove: d.cleared},
		{Says: "everything is deleted, and the driver is as shipped", Prove: endDrains},
	}}}
}

// withMoves installs the driver with moves, and lets nodes use the keys of the classes with encryption.
func withMoves(ctx context.Context, env *scenario.Environment, values ...string) error {
	return env.ApplyChart(ctx, append([]string{"move.enabled=true", "nodeRestriction.encryptedClasses={drained-encrypted,drained-encrypted-thin}"}, values...)...)
}

// start has the pods start on the one node that is not cordoned.
func (d *drains) start(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.CreateClasses, scenario.Apply("drain-classes.yaml"))(ctx, env); err != nil {
		return err
	}
	err := env.Cordoned(ctx, []string{"-l", "kubernetes.io/hostname!=" + here}, func() error {
		for _, s := range sets {
			if err := s.apply(ctx, env); err != nil {
				return err
			}
		}
		for _, s := range sets {
			if err := env.RunsOn(ctx, s.pod(), here); err != nil {
				return err
			}
			if err := s.write(ctx, env); err != nil {
				return err
			}
			d.nodes[s.name] = here
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := env.CreateSnapshot(ctx, "kept", sets[1].claims()[1]); err != nil {
		return err
	}
	return env.WaitSnapshotReady(ctx, "kept")
}

func (d *drains) planned(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "cordon", here); err != nil {
		return err
	}
	plan, err := env.Shell(ctx, "kubectl nodelvm drain "+here+" --dry-run")
	if err != nil {
		return fmt.Errorf("%w: %s", err, plan)
	}
	env.Reporter.Note("%s", strings.ReplaceAll(strings.TrimSpace(plan), "\n", "\n    "))
	words := []string{"snapshots of claim two-mirrored-0 stay on node " + here, "stays on " + here + ": snapshot demo/kept"}
	for _, s := range sets {
		for _, claim := range s.claims() {
			words = append(words, "demo/"+claim, "annotate pvc "+claim)
		}
	}
	for _, word := range words {
		if !strings.Contains(plan, word) {
			err = errors.Join(err, fmt.Errorf("the plan does not say %q", word))
		}
	}
	return err
}

// drained follows the how-to guide, and kills what takes part.
func (d *drains) drained(ctx context.Context, env *scenario.Environment) error {
	during, end := begin(ctx, env, "kubectl nodelvm drain "+here+" --yes")
	err := d.killSource(during, env)
	if err == nil {
		_, err = env.Kubectl(during, "", "drain", here, "--ignore-daemonsets", "--timeout=5m")
	}
	if err == nil {
		err = killTarget(during, env)
	}
	if err = because(during, err); err != nil {
		return err
	}
	_, watched := begin(ctx, env, "kubectl nodelvm moves --watch")
	if err := errors.Join(end("All claims' volumes have left "+here), watched(": "+api.MoveMoved)); err != nil {
		return err
	}
	return d.runElsewhere(ctx, env)
}

// runElsewhere fails unless all pods run on the other nodes, with what they had.
func (d *drains) runElsewhere(ctx context.Context, env *scenario.Environment) error {
	for _, s := range sets {
		pod, err := env.WaitPodReady(ctx, s.pod())
		if err != nil {
			return err
		}
		if d.nodes[s.name] = pod.Spec.NodeName; pod.Spec.NodeName == here || pod.Spec.NodeName == s.avoids {
			return fmt.Errorf("pod %s runs on %s", s.pod(), pod.Spec.NodeName)
		}
	}
	env.Reporter.Note("the pods run on %v", d.nodes)
	return d.same(ctx, env)
}

// same fails unless the pods have their data, and their volumes are on their nodes.
func (d *drains) same(ctx context.Context, env *scenario.Environment) error {
	for _, s := range sets {
		said, err := s.read(ctx, env)
		if err != nil {
			return err
		}
		if said != d.content[s.name] {
			return fmt.Errorf("pod %s has\n%s\nand had\n%s", s.pod(), said, d.content[s.name])
		}
		for _, claim := range s.claims() {
			if err := cluster.Eventually(ctx, func() error { return isOn(ctx, env, claim, d.nodes[s.name]) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// finished has the former copies of claims deleted.
func finished(ctx context.Context, env *scenario.Environment, claims []string) error {
	said, err := env.Shell(ctx, "kubectl nodelvm move -n demo "+strings.Join(claims, " ")+" --finish --yes")
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return cluster.Eventually(ctx, func() (err error) {
		for _, node := range env.Lab.NodeNames() {
			count, failed := formerCopies(ctx, env, node)
			if err = errors.Join(err, failed); count > 0 {
				err = errors.Join(err, fmt.Errorf("%d former copies are on %s", count, node))
			}
		}
		return err
	})
}

func (d *drains) emptied(ctx context.Context, env *scenario.Environment) error {
	said, err := env.Shell(ctx, "kubectl nodelvm drain-check "+here)
	if err == nil || !strings.Contains(said, "former copy") || !strings.Contains(said, "snapshot") {
		return fmt.Errorf("drain-check does not say that a snapshot and former copies are left: %w: %s", err, said)
	}
	if err := scenario.DeleteSnapshots(ctx, env); err != nil {
		return err
	}
	if err := finished(ctx, env, allClaims()); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		said, err := env.Shell(ctx, "kubectl nodelvm drain-check "+here)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return err
	})
}

// replaced takes a machine away, and puts another one in its place.
func (d *drains) replaced(ctx context.Context, env *scenario.Environment) error {
	node, err := env.Client.CoreV1().Nodes().Get(ctx, here, metav1.GetOptions{})
	if err != nil {
		return err
	}
	d.former = string(node.UID)
	if err := env.Lab.PowerCut(here); err != nil {
		return err
	}
	if err := env.Client.CoreV1().Nodes().Delete(ctx, here, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := env.Lab.Replace(ctx, here); err != nil {
		return err
	}
	image, err := cluster.BuildImage(ctx, io.Discard)
	if err != nil {
		return err
	}
	if err := env.Lab.ImportImage(ctx, image, here); err != nil {
		return err
	}
	if err := env.WaitDriverRolledOut(ctx); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		node, err := env.Client.CoreV1().Nodes().Get(ctx, here, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if string(node.UID) == d.former || node.Spec.Unschedulable {
			return fmt.Errorf("the Node object is still the former one: %s", node.UID)
		}
		registered, err := env.Client.StorageV1().CSINodes().Get(ctx, here, metav1.GetOptions{})
		if err != nil || !slices.ContainsFunc(registered.Spec.Drivers, func(driver storagev1.CSINodeDriver) bool { return driver.Name == cluster.Driver }) {
			return fmt.Errorf("the driver is not registered on %s: %w", here, err)
		}
		if _, err := env.PublishedCapacity(ctx, scenario.FastClass, here); err != nil {
			return err
		}
		rows, err := env.LogicalVolumes(ctx, here)
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("%s is not empty: %+v", here, rows)
		}
		return err
	})
}

// returned moves the volumes of one node by drain, and those of the other one by move.
func (d *drains) returned(ctx context.Context, env *scenario.Environment) error {
	on := map[string][]set{}
	for _, s := range sets {
		on[d.nodes[s.name]] = append(on[d.nodes[s.name]], s)
	}
	for i, node := range slices.Sorted(maps.Keys(on)) {
		command, ends := "kubectl nodelvm drain "+node+" --to "+here+" --yes", "All claims' volumes have left "+node
		if i > 0 {
			command, ends = "kubectl nodelvm move -n demo --wait --to "+here, ": "+api.MoveMoved
			for _, s := range on[node] {
				command += " " + s.claims()[0] + " " + s.claims()[1]
			}
		}
		during, end := begin(ctx, env, command)
		err := stopPods(during, env, on[node])
		if err == nil && i == 0 {
			err = cutTarget(during, env, node)
		}
		if err = because(during, err); err != nil {
			return err
		}
		if err := end(ends); err != nil {
			return err
		}
	}
	for _, s := range sets {
		if err := cluster.Eventually(ctx, func() error { return env.RunsOn(ctx, s.pod(), here) }); err != nil {
			return err
		}
		d.nodes[s.name] = here
	}
	return d.same(ctx, env)
}

// stopPods deletes each pod when its volumes wait for that.
func stopPods(ctx context.Context, env *scenario.Environment, sets []set) error {
	for _, s := range sets {
		for _, claim := range s.claims() {
			if err := reach(ctx, env, claim, api.MoveStopping, "delete it (kubectl -n demo delete pod "+s.pod()); err != nil {
				return err
			}
		}
		if err := env.Delete(ctx, "pod/"+s.pod()); err != nil {
			return err
		}
	}
	return nil
}

// cleared checks the objects and the disks. The next move removes the annotation move-finish.
func (d *drains) cleared(ctx context.Context, env *scenario.Environment) error {
	if err := finished(ctx, env, allClaims()); err != nil {
		return err
	}
	for _, claim := range allClaims() {
		if err := cluster.Eventually(ctx, func() error {
			c, err := env.Claim(ctx, claim)
			for _, key := range []string{api.AnnotationMoveTo, api.AnnotationMoveWith} {
				if err == nil && c.Annotations[key] != "" {
					err = fmt.Errorf("claim %s has the annotation %s: %s", claim, key, c.Annotations[key])
				}
			}
			if err == nil && !slices.Equal(c.Finalizers, []string{"kubernetes.io/pvc-protection"}) {
				err = fmt.Errorf("claim %s has the finalizers %q", claim, c.Finalizers)
			}
			return err
		}); err != nil {
			return err
		}
	}
	for _, node := range env.Lab.NodeNames() {
		if err := cluster.Eventually(ctx, func() error { return env.CheckNoneLeaked(ctx, node) }); err != nil {
			return err
		}
	}
	return noParkedVolume(ctx, env)
}

// noParkedVolume fails if a PersistentVolume is not bound.
func noParkedVolume(ctx context.Context, env *scenario.Environment) error {
	list, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if pv := &list.Items[i]; pv.Status.Phase != corev1.VolumeBound {
			err = errors.Join(err, fmt.Errorf("PersistentVolume %s is %s", pv.Name, pv.Status.Phase))
		}
	}
	if len(list.Items) != len(allClaims()) {
		err = errors.Join(err, fmt.Errorf("there are %d PersistentVolumes", len(list.Items)))
	}
	return err
}

func endDrains(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.DeleteEverything, scenario.NoVolumesRemain)(ctx, env); err != nil {
		return err
	}
	for _, objects := range [][]string{{"secret", "-n", cluster.Namespace, "--all"}, {"storageclass", "drained-striped", "drained-raid1", "drained-encrypted", "drained-encrypted-thin"}} {
		if _, err := env.Kubectl(ctx, "", append([]string{"delete"}, objects...)...); err != nil {
			return err
		}
	}
	return scenario.RestoreDriver(ctx, env)
}
