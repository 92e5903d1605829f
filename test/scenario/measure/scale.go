package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Scale is the size of the simulated cluster, and the time during which the scenario counts requests.
type Scale struct {
	Nodes, Volumes int
	Idle           time.Duration
	Own            int // real volumes on each real node
}

// Scaling measures the requests and memory of the driver's pods and the load of the API server in an idle cluster, alone and among the
// objects of a large one, and there an update of the driver.
func Scaling(sc Scale) []scenario.Scenario {
	c := &simulatedNodes{Scale: sc}
	return []scenario.Scenario{
		{Title: "What an idle cluster costs", Steps: []scenario.Step{
			{Says: "every node publishes its capacity", Prove: scenario.CapacityIsPublished},
			{Says: fmt.Sprintf("%d volumes are created on each node", sc.Own), Limit: 20 * time.Minute, Prove: c.volumes},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
		}},
		{Title: fmt.Sprintf("The same among %d nodes with %d volumes", sc.Nodes, sc.Volumes), Steps: []scenario.Step{
			{Says: "the test creates their objects", Limit: 60 * time.Minute, Prove: c.create},
			{Says: "the driver's pod on " + scenario.FirstNode + " restarts", Prove: c.restart},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
			{Says: "a claim still gets its volume at once", Prove: c.one},
			{Says: "all pods of the driver are replaced", Limit: 20 * time.Minute, Prove: c.rollout},
			{Says: "the test deletes them", Limit: 60 * time.Minute, Prove: c.remove},
		}},
	}
}

func (c *simulatedNodes) volumes(ctx context.Context, env *scenario.Environment) error {
	for _, node := range env.Lab.NodeNames() {
		for i := range c.Own {
			if err := env.CreateClaim(ctx, node, fmt.Sprintf("own-%s-%d", node, i), scenario.GrowingClass, "64Mi"); err != nil {
				return err
			}
		}
	}
	return cluster.Eventually(ctx, func() error {
		claims, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: scenario.WorkloadLabel})
		if err != nil {
			return err
		}
		for _, claim := range claims.Items {
			if claim.Status.Phase != corev1.ClaimBound {
				return fmt.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
			}
		}
		return nil
	})
}

// idle waits until earlier work has ended, and then counts requests during c.Idle.
func (c *simulatedNodes) idle(ctx context.Context, env *scenario.Environment) error {
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	before, err := apiServerOf(ctx, env)
	if err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, c.Idle); err != nil {
		return err
	}
	to := time.Now()
	if err := showAPIServer(ctx, env, before, "a minute", 1/to.Sub(from).Minutes()); err != nil {
		return err
	}
	if err := pause(ctx, 35*time.Second); err != nil { // the API server writes its log in batches, at least one in 30 s
		return err
	}
	counts, err := env.APIRequests(from, to)
	if err != nil {
		return err
	}
	perMinute := 1 / to.Sub(from).Minutes() / float64(len(env.Lab.NodeNames()))
	showRequests(env, counts, "A NODE AND MINUTE", perMinute)
	return showMemory(ctx, env)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// showRequests prints the requests of all nodes together, times a factor.
func showRequests(env *scenario.Environment, counts map[cluster.APIRequest]int, unit string, factor float64) {
	all, total := map[cluster.APIRequest]float64{}, 0.0
	for what, n := range counts {
		what.Node = ""
		all[what] += float64(n) * factor
		total += float64(n) * factor
	}
	rows := [][]string{}
	for _, what := range slices.SortedFunc(maps.Keys(all), func(a, b cluster.APIRequest) int {
		return strings.Compare(a.Container+a.Resource+a.Verb, b.Container+b.Resource+b.Verb)
	}) {
		rows = append(rows, []string{what.Container, what.Verb, what.Resource, fmt.Sprintf("%.2f", all[what])})
	}
	env.Reporter.Table([]string{"CONTAINER", "VERB", "RESOURCE", "REQUESTS " + unit}, append(rows, []string{"all", "", "", fmt.Sprintf("%.2f", total)}))
}

// showMemory prints the resident memory of each container of the driver's pods.
func showMemory(ctx context.Context, env *scenario.Environment) error {
	rows := [][]string{}
	for _, node := range env.Lab.NodeNames() {
		row := []string{node}
		for _, container := range driverContainers {
			kib, err := env.ResidentMemory(ctx, node, container)
			if err != nil {
				return err
			}
			row = append(row, fmt.Sprintf("%.1f MiB", float64(kib)/1024))
		}
		rows = append(rows, row)
	}
	env.Reporter.Table(append([]string{"NODE"}, driverContainers...), rows)
	return nil
}

var driverContainers = []string{"nodelvm", "csi-provisioner", "csi-snapshotter"}

// create creates the simulated objects, and prints what that costs the API server.
func (c *simulatedNodes) create(ctx context.Context, env *scenario.Environment) error {
	before, err := apiServerOf(ctx, env)
	if err != nil {
		return err
	}
	if err := c.write(ctx, env); err != nil {
		return err
	}
	return showAPIServer(ctx, env, before, "a volume", 1/float64(c.Volumes))
}

// restart deletes the driver's pod, and prints the time until the new one is Ready, and its requests.
func (c *simulatedNodes) restart(ctx context.Context, env *scenario.Environment) error {
	old, err := env.DriverPodOn(ctx, scenario.FirstNode)
	if err != nil {
		return err
	}
	if err := env.Client.CoreV1().Pods(cluster.DriverNamespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	var started, ready time.Time
	err = cluster.Eventually(ctx, func() error {
		pod, err := env.DriverPodOn(ctx, scenario.FirstNode)
		if err != nil {
			return err
		}
		if started, ready = pod.CreationTimestamp.Time, readyAt(&pod); ready.IsZero() || pod.UID == old.UID {
			return errors.New("the new pod is not Ready")
		}
		return nil
	})
	if err != nil {
		return err
	}
	env.Reporter.Note("the pod was Ready after %.0f s", ready.Sub(started).Seconds())
	if err := pause(ctx, 35*time.Second); err != nil {
		return err
	}
	counts, err := env.APIRequests(started, ready.Add(30*time.Second))
	if err != nil {
		return err
	}
	maps.DeleteFunc(counts, func(what cluster.APIRequest, _ int) bool { return what.Node != scenario.FirstNode })
	showRequests(env, counts, "UNTIL 30 S AFTER IT", 1)
	return nil
}

// rollout replaces the driver's pods as an update does, and prints how long that takes, its requests and the load of the API server.
func (c *simulatedNodes) rollout(ctx context.Context, env *scenario.Environment) error {
	before, err := apiServerOf(ctx, env)
	if err != nil {
		return err
	}
	from := time.Now()
	if _, err := env.Kubectl(ctx, "", "rollout", "restart", "-n", cluster.DriverNamespace, cluster.DaemonSet); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return rolledOut(ctx, env) }); err != nil {
		return err
	}
	if err := showRollout(ctx, env, time.Since(from)); err != nil {
		return err
	}
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	to, aNode := time.Now(), 1/float64(len(env.Lab.NodeNames()))
	if err := showAPIServer(ctx, env, before, "a node, until 30 s after it", aNode); err != nil {
		return err
	}
	if err := pause(ctx, 35*time.Second); err != nil { // for the log, as above
		return err
	}
	counts, err := env.APIRequests(from, to)
	if err != nil {
		return err
	}
	showRequests(env, counts, "A NODE, UNTIL 30 S AFTER IT", aNode)
	return nil
}

// rolledOut fails until every node has a Ready pod of the DaemonSet's last version.
func rolledOut(ctx context.Context, env *scenario.Environment) error {
	set, err := driverSet(ctx, env)
	if err != nil {
		return err
	}
	want, is := int32(len(env.Lab.NodeNames())), set.Status //nolint:gosec // a few
	if is.ObservedGeneration != set.Generation || is.UpdatedNumberScheduled != want || is.NumberReady != want || is.NumberUnavailable != 0 {
		return fmt.Errorf("the DaemonSet's status is %+v", is)
	}
	return nil
}

func driverSet(ctx context.Context, env *scenario.Environment) (*appsv1.DaemonSet, error) {
	return env.Client.AppsV1().DaemonSets(cluster.DriverNamespace).Get(ctx, strings.TrimPrefix(cluster.DaemonSet, "daemonset/"), metav1.GetOptions{})
}

// showRollout prints how long a rollout took, and of that the start of the new pods.
func showRollout(ctx context.Context, env *scenario.Environment, took time.Duration) error {
	set, err := driverSet(ctx, env)
	if err != nil {
		return err
	}
	pods, err := env.NodePods(ctx)
	if err != nil {
		return err
	}
	var starts time.Duration
	for _, pod := range pods {
		starts += readyAt(&pod).Sub(pod.CreationTimestamp.Time)
	}
	n := time.Duration(len(pods))
	env.Reporter.Note("%d pods were replaced in %.0f s with maxUnavailable %s: %.1f s a pod, of it %.1f s from the creation of the new pod until it was Ready",
		n, took.Seconds(), set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable, (took / n).Seconds(), (starts / n).Seconds())
	return nil
}

// readyAt is when a pod became Ready; zero: it is not.
func readyAt(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// one prints the time from the creation of a claim that names its node until it is bound.
func (c *simulatedNodes) one(ctx context.Context, env *scenario.Environment) error {
	began := time.Now()
	if err := env.CreateClaim(ctx, scenario.FirstNode, "own-one", scenario.GrowingClass, "64Mi"); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "own-one"); err != nil {
		return err
	}
	env.Reporter.Note("the claim was Bound after %.1f s", time.Since(began).Seconds())
	return nil
}
