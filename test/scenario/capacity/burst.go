package capacity

import (
	"context"
	"errors"
	"fmt"
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

	plain spent // without volumes
}

// spent is what a burst took until all pods were Ready.
type spent struct {
	time time.Duration
	used usage
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
	b.plain, err = startBurst(ctx, env, b.replicas(), false)
	if err != nil {
		return err
	}
	env.Reporter.Note("it took %.1f s", b.plain.time.Seconds())
	return burstEnds(ctx, env)
}

func (b *burst) with(ctx context.Context, env *scenario.Environment) error {
	took, failed, err := b.measured(ctx, env)
	if err != nil {
		return err
	}
	ratio := took.time.Seconds() / b.plain.time.Seconds()
	env.Reporter.Note("it took %.1f s, %.2f times as long", took.time.Seconds(), ratio)
	env.Reporter.Table([]string{"PROCESSOR TIME OF", "WITHOUT VOLUMES, S", "WITH VOLUMES, S", "MORE PER VOLUME, MS"}, rows(b.plain.used, took.used, b.replicas()))
	if failed > 0 {
		return fmt.Errorf("%.0f CreateVolume calls failed", failed)
	}
	if ratio > mostTimes {
		return fmt.Errorf("with volumes it took %.2f times as long as without", ratio)
	}
	return burstEnds(ctx, env)
}

// measured starts the pods with volumes, and answers what it took and how many CreateVolume calls failed.
func (b *burst) measured(ctx context.Context, env *scenario.Environment) (took spent, failed float64, err error) {
	before, err := failedCreates(ctx, env)
	if err != nil {
		return spent{}, 0, err
	}
	took, err = startBurst(ctx, env, b.replicas(), true)
	if err != nil {
		return spent{}, 0, err
	}
	after, err := failedCreates(ctx, env)
	return took, after - before, err
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
	took, failed, err := b.measured(ctx, env)
	if err != nil {
		return err
	}
	env.Reporter.Note("it took %.1f s; %.0f times a node had to give a claim back", took.time.Seconds(), failed)
	on, err := b.byNode(ctx, env)
	if err != nil {
		return err
	}
	if !slices.Equal(on, b.rooms) {
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

// startBurst makes all pods at once, waits until all are Ready, and answers what that took.
func startBurst(ctx context.Context, env *scenario.Environment, replicas int, volumes bool) (took spent, err error) {
	if err := burstSet(ctx, env, volumes); err != nil {
		return spent{}, err
	}
	before, err := usageOf(ctx, env)
	if err != nil {
		return spent{}, err
	}
	start := time.Now()
	scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := env.Client.AppsV1().StatefulSets(cluster.Namespace).Patch(ctx, "burst", types.MergePatchType, scale, metav1.PatchOptions{}); err != nil {
		return spent{}, err
	}
	err = cluster.Eventually(ctx, func() error {
		ready, err := readyPods(ctx, env)
		if err == nil && len(ready) < replicas {
			err = fmt.Errorf("%d of %d pods are Ready", len(ready), replicas)
		}
		return err
	})
	took.time = time.Since(start)
	if err != nil {
		return spent{}, err
	}
	now, err := usageOf(ctx, env)
	took.used = now.since(before)
	return took, err
}

// readyPods lists the pods of the scenarios' namespace that are Ready.
func readyPods(ctx context.Context, env *scenario.Environment) ([]corev1.Pod, error) {
	list, err := env.Client.CoreV1().Pods(cluster.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	}), nil
}

// byNode counts the pods on each node, in the order of the nodes' names.
func (b *burst) byNode(ctx context.Context, env *scenario.Environment) (counts []int, err error) {
	ready, err := readyPods(ctx, env)
	for _, node := range env.Lab.NodeNames() {
		on := slices.DeleteFunc(slices.Clone(ready), func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
		counts = append(counts, len(on))
	}
	return counts, err
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
	mayStay := func(row cluster.LogicalVolume) bool { return row.Name == "admins" || row.IsPool() }
	return cluster.Eventually(ctx, func() error { return env.CheckNoVolumes(ctx, mayStay) })
}
