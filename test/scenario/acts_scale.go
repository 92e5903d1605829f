package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Scale says how large a cluster is run, and for how long it is watched.
type Scale struct {
	Nodes, Volumes int
	Idle           time.Duration
	Own            int // real volumes on each real node
}

// ScaleActs measures what an idle cluster costs, as it is and with the objects of a large one.
func ScaleActs(sc Scale) []Act {
	c := &simulatedNodes{Scale: sc}
	return []Act{
		{Title: "What an idle cluster costs", Steps: []Step{
			{Says: "every node publishes its capacity", Prove: (&freshness{}).begin},
			{Says: fmt.Sprintf("%d volumes are made on each node", sc.Own), Limit: 20 * time.Minute, Prove: c.volumes},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
		}},
		{Title: fmt.Sprintf("The same among %d nodes with %d volumes", sc.Nodes, sc.Volumes), Steps: []Step{
			{Says: "their objects are written", Limit: 60 * time.Minute, Prove: c.write},
			{Says: "the driver's pod on " + loadNode + " starts anew", Prove: c.restart},
			{Says: fmt.Sprintf("for %s nothing happens: requests and memory", sc.Idle), Limit: sc.Idle + 5*time.Minute, Prove: c.idle},
			{Says: "a claim still gets its volume at once", Prove: c.one},
			{Says: "the objects are deleted", Limit: 60 * time.Minute, Prove: c.remove},
		}},
	}
}

func (c *simulatedNodes) volumes(ctx context.Context, s *Stage) error {
	for _, node := range s.Lab.NodeNames() {
		for i := range c.Own {
			if err := s.claimOn(ctx, node, fmt.Sprintf("own-%s-%d", node, i)); err != nil {
				return err
			}
		}
	}
	return eventually(ctx, func() error {
		claims, err := s.Client.CoreV1().PersistentVolumeClaims(Namespace).List(ctx, metav1.ListOptions{LabelSelector: chaosLabel})
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

// idle lets what was done before come to rest, and then counts for a while.
func (c *simulatedNodes) idle(ctx context.Context, s *Stage) error {
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	from := time.Now()
	if err := pause(ctx, c.Idle); err != nil {
		return err
	}
	to := time.Now()
	if err := pause(ctx, 35*time.Second); err != nil { // the log is written in batches, one in 30 s at the least
		return err
	}
	counts, err := s.asked(from, to)
	if err != nil {
		return err
	}
	perMinute := 1 / to.Sub(from).Minutes() / float64(len(s.Lab.NodeNames()))
	s.tellAsked(counts, "A NODE AND MINUTE", perMinute)
	return s.tellMemory(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// tellAsked shows the requests of all nodes together, times a factor.
func (s *Stage) tellAsked(counts map[asked]int, unit string, factor float64) {
	all, total := map[asked]float64{}, 0.0
	for what, n := range counts {
		what.node = ""
		all[what] += float64(n) * factor
		total += float64(n) * factor
	}
	rows := [][]string{}
	for _, what := range slices.SortedFunc(maps.Keys(all), func(a, b asked) int {
		return strings.Compare(a.container+a.resource+a.verb, b.container+b.resource+b.verb)
	}) {
		rows = append(rows, []string{what.container, what.verb, what.resource, fmt.Sprintf("%.2f", all[what])})
	}
	s.Narrator.Table([]string{"CONTAINER", "VERB", "RESOURCE", "REQUESTS " + unit}, append(rows, []string{"all", "", "", fmt.Sprintf("%.2f", total)}))
}

// tellMemory shows the resident memory of each container of the driver's pods, and the processor time that it has had.
func (s *Stage) tellMemory(ctx context.Context) error {
	rows := [][]string{}
	for _, node := range s.Lab.NodeNames() {
		row := []string{node}
		for _, container := range driverContainers {
			kib, err := s.resident(ctx, node, container)
			if err != nil {
				return err
			}
			row = append(row, fmt.Sprintf("%.1f MiB", float64(kib)/1024))
		}
		rows = append(rows, row)
	}
	s.Narrator.Table(append([]string{"NODE"}, driverContainers...), rows)
	return nil
}

var driverContainers = []string{"nodelvm", "csi-provisioner", "csi-snapshotter"}

// resident is the memory of a node's oldest process of that name, in KiB: what it starts bears its name for a moment.
func (s *Stage) resident(ctx context.Context, node, name string) (int, error) {
	out, err := s.run(ctx, node, "sh", "-ec", "grep VmRSS /proc/$(pgrep -ox "+name+")/status")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(out))
	if len(fields) != 3 {
		return 0, fmt.Errorf("unreadable: %q", out)
	}
	return strconv.Atoi(fields[1])
}

// restart tells how long a new pod takes until it is Ready, and what it asks for meanwhile.
func (c *simulatedNodes) restart(ctx context.Context, s *Stage) error {
	old, err := s.driverOn(ctx, loadNode)
	if err != nil {
		return err
	}
	if err := s.Client.CoreV1().Pods(driverNamespace).Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	var started, ready time.Time
	err = eventually(ctx, func() error {
		pod, err := s.driverOn(ctx, loadNode)
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
	s.Narrator.Note("it was Ready after %.0f s", ready.Sub(started).Seconds())
	if err := pause(ctx, 35*time.Second); err != nil {
		return err
	}
	counts, err := s.asked(started, ready.Add(30*time.Second))
	if err != nil {
		return err
	}
	maps.DeleteFunc(counts, func(what asked, _ int) bool { return what.node != loadNode })
	s.tellAsked(counts, "UNTIL 30 S AFTER IT", 1)
	return nil
}

// driverOn is the driver's pod on a node; one that is being deleted does not count.
func (s *Stage) driverOn(ctx context.Context, node string) (corev1.Pod, error) {
	pods, err := s.Client.CoreV1().Pods(driverNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return corev1.Pod{}, err
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(running) != 1 {
		return corev1.Pod{}, fmt.Errorf("%d driver pods on %s", len(running), node)
	}
	return running[0], nil
}

// one is how long a claim takes that names its node, from its creation until it is bound.
func (c *simulatedNodes) one(ctx context.Context, s *Stage) error {
	began := time.Now()
	if err := s.claimOn(ctx, loadNode, "own-one"); err != nil {
		return err
	}
	if _, err := s.claimBound(ctx, "own-one"); err != nil {
		return err
	}
	s.Narrator.Note("it took %.1f s", time.Since(began).Seconds())
	return nil
}
