package scenario

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
)

// Scale is the size of the simulated cluster, and the time during which the scenario counts requests.
type Scale struct {
	Nodes, Volumes int
	Idle           time.Duration
	Own            int // real volumes on each real node
}

// Scaling measures the requests and memory of the driver's pods in an idle cluster, alone and among the objects of a large one.
func Scaling(sc Scale) []Scenario {
	c := &simulatedNodes{Scale: sc}
	return []Scenario{
		{Title: "What an idle cluster costs", Steps: []Step{
			{Says: "every node publishes its capacity", Prove: (&freshness{}).begin},
			{Says: fmt.Sprintf("%d volumes are created on each node", sc.Own), Limit: 20 * time.Minute, Prove: c.volumes},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
		}},
		{Title: fmt.Sprintf("The same among %d nodes with %d volumes", sc.Nodes, sc.Volumes), Steps: []Step{
			{Says: "the test creates their objects", Limit: 60 * time.Minute, Prove: c.write},
			{Says: "the driver's pod on " + loadNode + " restarts", Prove: c.restart},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
			{Says: "a claim still gets its volume at once", Prove: c.one},
			{Says: "the test deletes them", Limit: 60 * time.Minute, Prove: c.remove},
		}},
	}
}

func (c *simulatedNodes) volumes(ctx context.Context, env *Environment) error {
	for _, node := range env.Lab.NodeNames() {
		for i := range c.Own {
			if err := env.claimOn(ctx, node, fmt.Sprintf("own-%s-%d", node, i)); err != nil {
				return err
			}
		}
	}
	return cluster.Eventually(ctx, func() error {
		claims, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).List(ctx, metav1.ListOptions{LabelSelector: workloadLabel})
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
func (c *simulatedNodes) idle(ctx context.Context, env *Environment) error {
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, c.Idle); err != nil {
		return err
	}
	to := time.Now()
	if err := pause(ctx, 35*time.Second); err != nil { // the API server writes its log in batches, at least one in 30 s
		return err
	}
	counts, err := env.APIRequests(from, to)
	if err != nil {
		return err
	}
	perMinute := 1 / to.Sub(from).Minutes() / float64(len(env.Lab.NodeNames()))
	env.showRequests(counts, "A NODE AND MINUTE", perMinute)
	return env.showMemory(ctx)
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
func (env *Environment) showRequests(counts map[cluster.APIRequest]int, unit string, factor float64) {
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
func (env *Environment) showMemory(ctx context.Context) error {
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

// restart deletes the driver's pod, and prints the time until the new one is Ready, and its requests.
func (c *simulatedNodes) restart(ctx context.Context, env *Environment) error {
	old, err := env.driverOn(ctx, loadNode)
	if err != nil {
		return err
	}
	if err := env.Client.CoreV1().Pods(cluster.DriverNamespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	var started, ready time.Time
	err = cluster.Eventually(ctx, func() error {
		pod, err := env.driverOn(ctx, loadNode)
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.UID != old.UID {
				started, ready = pod.CreationTimestamp.Time, condition.LastTransitionTime.Time
				return nil
			}
		}
		return errors.New("the new pod is not Ready")
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
	maps.DeleteFunc(counts, func(what cluster.APIRequest, _ int) bool { return what.Node != loadNode })
	env.showRequests(counts, "UNTIL 30 S AFTER IT", 1)
	return nil
}

// driverOn is the driver's pod on a node; one that is being deleted does not count.
func (env *Environment) driverOn(ctx context.Context, node string) (corev1.Pod, error) {
	pods, err := env.Client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return corev1.Pod{}, err
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(running) != 1 {
		return corev1.Pod{}, fmt.Errorf("%d driver pods on %s", len(running), node)
	}
	return running[0], nil
}

// one prints the time from the creation of a claim that names its node until it is bound.
func (c *simulatedNodes) one(ctx context.Context, env *Environment) error {
	began := time.Now()
	if err := env.claimOn(ctx, loadNode, "own-one"); err != nil {
		return err
	}
	if _, err := env.WaitClaimBound(ctx, "own-one"); err != nil {
		return err
	}
	env.Reporter.Note("the claim was Bound after %.1f s", time.Since(began).Seconds())
	return nil
}
