package capacity

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// mostTimes is how many times as long pods with volumes may take as pods without.
const mostTimes = 2.0

// burst is a StatefulSet whose pods are all made at once.
type burst struct {
	rooms []int // on so many nodes, how many of its volumes fit in the last part

	plain, full time.Duration // how long it took without volumes, and with them
	plainTimes  *timeline
}

// Burst returns the burst of 60 volumes, which takes long.
func Burst() []scenario.Scenario { return []scenario.Scenario{newBurst(8, 20, 32).scenario()} }

func newBurst(rooms ...int) *burst { return &burst{rooms: rooms} }

func (b *burst) replicas() (n int) {
	for _, room := range b.rooms {
		n += room
	}
	return n
}

func (b *burst) scenario() scenario.Scenario {
	n := b.replicas()
	return scenario.Scenario{Title: "Many volumes at once", Steps: []scenario.Step{
		{Says: "every node publishes its capacity", Prove: scenario.CapacityIsPublished},
		{Says: fmt.Sprintf("%d pods without volumes start at once", n), Limit: 20 * time.Minute, Prove: b.without},
		{Says: fmt.Sprintf("with a volume of 64 MiB each they take at most %.1f times as long, and no CreateVolume fails", mostTimes), Limit: 40 * time.Minute, Prove: b.with},
		{Says: fmt.Sprintf("where only %v of them have room, all %d run, with no help", b.rooms, n), Limit: 40 * time.Minute, Prove: b.exact},
	}}
}

func (b *burst) without(ctx context.Context, env *scenario.Environment) (err error) {
	b.plainTimes, err = startBurst(ctx, env, b.replicas(), false)
	if err != nil {
		return err
	}
	b.plain = b.plainTimes.took()
	env.Reporter.Note("it took %.1f s", b.plain.Seconds())
	return burstEnds(ctx, env)
}

func (b *burst) with(ctx context.Context, env *scenario.Environment) error {
	before, err := driverFigures(ctx, env)
	if err != nil {
		return err
	}
	start := metav1.Now()
	times, err := startBurst(ctx, env, b.replicas(), true)
	if err != nil {
		return err
	}
	after, err := driverFigures(ctx, env)
	if err != nil {
		return err
	}
	stages, err := driverStages(ctx, env, start)
	if err != nil {
		return err
	}
	b.full = times.took()
	ratio := b.full.Seconds() / b.plain.Seconds()
	env.Reporter.Note("it took %.1f s, %.2f times as long", b.full.Seconds(), ratio)
	env.Reporter.Table([]string{"OF THAT, FOR ONE POD", "MEDIAN", "WORST"}, breakdown(times, b.plainTimes, after.minus(before), stages))
	if failed := after.minus(before).failed(createVolume); failed > 0 {
		return fmt.Errorf("%.0f CreateVolume calls failed", failed)
	}
	if ratio > mostTimes {
		return fmt.Errorf("with volumes it took %.2f times as long as without", ratio)
	}
	return burstEnds(ctx, env)
}

// exact leaves no room but what the pods need, and the scheduler knows of it only what the nodes publish meanwhile.
func (b *burst) exact(ctx context.Context, env *scenario.Environment) (err error) {
	if len(b.rooms) != len(env.Lab.NodeNames()) {
		return fmt.Errorf("there are %d nodes", len(env.Lab.NodeNames()))
	}
	for i, node := range env.Lab.NodeNames() {
		put, err := leaveRoom(ctx, env, node, int64(b.rooms[i])*64<<20)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, put(ctx)) }()
	}
	before, err := driverFigures(ctx, env)
	if err != nil {
		return err
	}
	times, err := startBurst(ctx, env, b.replicas(), true)
	if err != nil {
		return err
	}
	after, err := driverFigures(ctx, env)
	if err != nil {
		return err
	}
	env.Reporter.Note("it took %.1f s; %.0f times a node had to give a claim back", times.took().Seconds(), after.minus(before).failed(createVolume))
	if on := times.nodes(); !slices.Equal(on, b.rooms) {
		return fmt.Errorf("%v pods run on the nodes, there was room for %v", on, b.rooms)
	}
	return burstEnds(ctx, env)
}

// leaveRoom has a node's admin take all of its room but so many bytes, and answers how that is taken back. It returns when
// the node publishes that.
func leaveRoom(ctx context.Context, env *scenario.Environment, node string, bytes int64) (takeBack func(context.Context) error, err error) {
	if err := env.DropEmptyPools(ctx, node); err != nil { // the driver would, some time later
		return nil, err
	}
	now, err := env.GroupState(ctx, node)
	if err != nil {
		return nil, err
	}
	groups, err := env.VolumeGroups(ctx, node)
	if err != nil {
		return nil, err
	}
	group := groups[0].Name // standing has seen that there is one
	take := fmt.Sprint(now.FreeExtents - bytes/now.ExtentSize)
	if _, err := env.RunOnNode(ctx, node, "lvcreate", "-qq", "-y", "-Wn", "-Zn", "-l", take, "-n", "admins", group); err != nil {
		return nil, err
	}
	takeBack = func(ctx context.Context) error {
		ctx, cancel := cluster.CleanUpContext(ctx)
		defer cancel()
		_, err := env.RunOnNode(ctx, node, "lvremove", "-qq", "-y", group+"/admins")
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.CheckPublishedCapacity(ctx, scenario.GrowingClass, node, bytes) }); err != nil {
		return nil, errors.Join(err, takeBack(ctx))
	}
	return takeBack, nil
}

// startBurst makes all pods at once and returns when all are Ready.
func startBurst(ctx context.Context, env *scenario.Environment, replicas int, volumes bool) (*timeline, error) {
	if err := burstSet(ctx, env, volumes); err != nil {
		return nil, err
	}
	times, err := watchBurst(ctx, env)
	if err != nil {
		return nil, err
	}
	defer times.stop()
	scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := env.Client.AppsV1().StatefulSets(cluster.Namespace).Patch(ctx, "burst", types.MergePatchType, scale, metav1.PatchOptions{}); err != nil {
		return nil, err
	}
	return times, times.allReady(ctx, replicas)
}

// burstSet makes the StatefulSet, of no pods yet.
func burstSet(ctx context.Context, env *scenario.Environment, volumes bool) error {
	if err := scenario.Apply("load-burst.yaml")(ctx, env); err != nil || !volumes {
		return err
	}
	sets := env.Client.AppsV1().StatefulSets(cluster.Namespace)
	set, err := sets.Get(ctx, "burst", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := sets.Delete(ctx, "burst", metav1.DeleteOptions{}); err != nil { // templates of claims cannot be added
		return err
	}
	class := scenario.GrowingClass
	set.ObjectMeta = metav1.ObjectMeta{Name: set.Name, Namespace: set.Namespace}
	set.Spec.Template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
		},
	}}
	return cluster.Eventually(ctx, func() error {
		_, err := sets.Create(ctx, set, metav1.CreateOptions{})
		return err
	})
}

// burstEnds deletes the pods and their claims, and returns when their volumes are wiped and removed.
func burstEnds(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			rows, err := env.LogicalVolumes(ctx, node)
			if err != nil {
				return err
			}
			rows = slices.DeleteFunc(rows, func(row cluster.LogicalVolume) bool { return row.Name == "admins" || row.IsPool() })
			if len(rows) > 0 {
				return fmt.Errorf("%s has %d logical volumes: %v", node, len(rows), rows)
			}
		}
		return nil
	})
}

// nodes counts the pods on each node, in the order of the nodes' names.
func (t *timeline) nodes() (counts []int) {
	on := map[string]int{}
	for _, m := range t.all() {
		on[m.node]++
	}
	for _, name := range slices.Sorted(maps.Keys(on)) {
		counts = append(counts, on[name])
	}
	return counts
}
