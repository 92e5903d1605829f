package capacity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// moments is when what happened to one pod of the burst, as a watch on the API server tells it.
type moments struct {
	node                                    string
	made, chosen, bound, scheduled, running time.Time
}

// timeline watches the pods of a burst, and their claims.
type timeline struct {
	start   time.Time
	watches []watch.Interface

	mu   sync.Mutex
	pods map[string]*moments
}

func watchBurst(ctx context.Context, env *scenario.Environment) (*timeline, error) {
	t := &timeline{start: time.Now(), pods: map[string]*moments{}}
	pods, err := env.Client.CoreV1().Pods(cluster.Namespace).Watch(ctx, metav1.ListOptions{LabelSelector: "app=burst"})
	if err != nil {
		return nil, err
	}
	claims, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		pods.Stop()
		return nil, err
	}
	t.watches = []watch.Interface{pods, claims}
	for _, w := range t.watches {
		go func() {
			for event := range w.ResultChan() {
				t.note(event.Object)
			}
		}()
	}
	return t, nil
}

func (t *timeline) stop() {
	for _, w := range t.watches {
		w.Stop()
	}
}

func (t *timeline) note(object any) {
	now := time.Now()
	first := func(moment *time.Time, is bool) {
		if is && moment.IsZero() {
			*moment = now
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch o := object.(type) {
	case *corev1.Pod:
		m := t.of(o.Name)
		m.node = o.Spec.NodeName
		first(&m.made, true)
		first(&m.scheduled, m.node != "")
		first(&m.running, slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}))
	case *corev1.PersistentVolumeClaim:
		m := t.of(strings.TrimPrefix(o.Name, "data-"))
		first(&m.chosen, o.Annotations[scenario.AnnSelectedNode] != "")
		first(&m.bound, o.Status.Phase == corev1.ClaimBound)
	}
}

func (t *timeline) of(pod string) *moments {
	if t.pods[pod] == nil {
		t.pods[pod] = &moments{}
	}
	return t.pods[pod]
}

// all answers the pods that are Ready.
func (t *timeline) all() (ready []moments) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.pods {
		if !m.running.IsZero() {
			ready = append(ready, *m)
		}
	}
	return ready
}

func (t *timeline) allReady(ctx context.Context, replicas int) error {
	return cluster.Eventually(ctx, func() error {
		if ready := len(t.all()); ready < replicas {
			return fmt.Errorf("%d of %d pods are Ready", ready, replicas)
		}
		return nil
	})
}

// took is how long it took until the last pod was Ready.
func (t *timeline) took() (all time.Duration) {
	for _, m := range t.all() {
		all = max(all, m.running.Sub(t.start))
	}
	return all
}

// breakdown is where the time of a pod goes, by what does the work.
func breakdown(with, without *timeline, figures figures, stages []stage) (rows [][]string) {
	row := func(what string, spans []time.Duration) {
		if len(spans) == 0 {
			return
		}
		slices.Sort(spans)
		rows = append(rows, []string{what, seconds(spans[len(spans)/2]), seconds(spans[len(spans)-1])})
	}
	between := func(t *timeline, from, to func(moments) time.Time) (spans []time.Duration) {
		for _, m := range t.all() {
			spans = append(spans, to(m).Sub(from(m)))
		}
		return spans
	}
	start := func(t *timeline) func(moments) time.Time { return func(moments) time.Time { return t.start } }
	made := func(m moments) time.Time { return m.made }
	chosen := func(m moments) time.Time { return m.chosen }
	bound := func(m moments) time.Time { return m.bound }
	scheduled := func(m moments) time.Time { return m.scheduled }
	running := func(m moments) time.Time { return m.running }
	row("StatefulSet: asked for, to pod made", between(with, start(with), made))
	row("  the same without volumes", between(without, start(without), made))
	row("scheduler: pod made, to node chosen", between(with, made, chosen))
	row("csi-provisioner and CreateVolume: node chosen, to claim bound", between(with, chosen, bound))
	row("scheduler: claim bound, to pod bound to the node", between(with, bound, scheduled))
	row("  without volumes: pod made, to pod bound to the node", between(without, made, scheduled))
	row("kubelet: pod bound to the node, to Ready", between(with, scheduled, running))
	row("  the same without volumes", between(without, scheduled, running))
	for _, operation := range []string{createVolume, "lvcreate", "lvchange", "NodeStageVolume", "NodePublishVolume"} {
		if mean, count := figures.mean(operation); count > 0 {
			rows = append(rows, []string{fmt.Sprintf("in it, %s (%.0f of them; mean)", operation, count), seconds(mean), ""})
		}
	}
	row("in NodeStageVolume: activate, probe", spansOf(stages, func(s stage) time.Duration { return s.before }))
	row("in NodeStageVolume: mkfs, mount", spansOf(stages, func(s stage) time.Duration { return s.after }))
	return rows
}

func spansOf(stages []stage, of func(stage) time.Duration) (spans []time.Duration) {
	for _, s := range stages {
		spans = append(spans, of(s))
	}
	return spans
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
