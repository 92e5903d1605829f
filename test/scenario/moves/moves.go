package moves

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	pod   = "moving-0" // of move-database.yaml
	here  = "node-1"
	there = "node-2"
	none  = ""
)

// claims are those of the pod.
var claims = []string{"data-moving-0", "wal-moving-0", "other-moving-0"}

// thin are the claims that are copied while the pod runs.
var thin = claims[:2]

// Scenarios returns the moves of a database.
func Scenarios() []scenario.Scenario {
	m := &database{data: "1Gi", wal: "512Mi"}
	return []scenario.Scenario{{Title: "A database moves to another node with its data, and back", Steps: []scenario.Step{
		{Says: "the driver runs with move.enabled", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.ApplyChart(ctx, "move.enabled=true")
		}},
		{Says: "a PostgreSQL server has thin volumes for its data and its write-ahead log, and a small linear one, on " + here, Prove: m.start},
		{Says: "a move that is cancelled while the pod runs does not interrupt it", Prove: m.cancelled},
		{Says: "under pgbench the volumes move to " + there + ", and every acknowledged row is there", Prove: m.moves(here, there)},
		{Says: "the former copies on " + here + " are deleted on request", Prove: finish(here)},
		{Says: "under pgbench the volumes move back to " + here + ", and every acknowledged row is there", Prove: m.moves(there, here)},
		{Says: "a volume that moved can be expanded", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.Expand(ctx, "data-moving-0", pod, "1100Mi")
		}},
		{Says: "the former copies on " + there + " are deleted on request", Prove: finish(there)},
		{Says: "on a disk so slow that a comparison takes minutes, a move can be cancelled, and the next one arrives", Limit: 30 * time.Minute, Prove: m.comparesSlowly},
		{Says: "the former copies on " + here + " are deleted on request", Prove: finish(here)},
		{Says: "everything is deleted, and the driver is as shipped", Prove: end},
	}}}
}

// database is what one step leaves for the next to know.
type database struct {
	data, wal string // sizes of the claims
	acked     int64  // the writer's last acknowledged row
}

func (m *database) start(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.CreateClasses(ctx, env); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "move-database.yaml", "SIZE-OF-DATA", m.data, "SIZE-OF-WAL", m.wal); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, pod, here); err != nil {
		return err
	}
	if _, err := env.QueryIn(ctx, pod, "create table acked (n bigint primary key)"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, pod, "pgbench", "-i", "-q", "-s", "4", "postgres"); err != nil {
		return err
	}
	return m.areOn(ctx, env, here)
}

// areOn fails unless the volumes are on a node, bound, and as before a move.
func (m *database) areOn(ctx context.Context, env *scenario.Environment, node string) error {
	for claim, size := range map[string]string{claims[0]: m.data, claims[1]: m.wal, claims[2]: "64Mi"} {
		if err := isOn(ctx, env, claim, node); err != nil {
			return err
		}
		if err := env.CheckSizes(ctx, claim, size); err != nil {
			return err
		}
	}
	return nil
}

// request annotates the claims with a node; none takes the request back.
func request(ctx context.Context, env *scenario.Environment, key, node string) error {
	value := "null"
	if node != none {
		value = fmt.Sprintf("%q", node)
	}
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, key, value)
	for _, claim := range claims {
		if _, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Patch(ctx, claim, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// reach waits until the status of a claim has a phase and says some words.
func reach(ctx context.Context, env *scenario.Environment, claim, phase, words string) error {
	return cluster.Eventually(ctx, func() error {
		c, err := env.Claim(ctx, claim)
		if err != nil {
			return err
		}
		if s, _ := api.MoveStatusOf(c.Annotations); s.Phase != phase || !strings.Contains(s.Message, words) {
			return fmt.Errorf("claim %s is %+v, not %s (%q)%s", claim, s, phase, words, env.LastEvents(ctx, claim))
		}
		return nil
	})
}

// allReach is reach for all claims.
func allReach(ctx context.Context, env *scenario.Environment, phase, words string) error {
	for _, claim := range claims {
		if err := reach(ctx, env, claim, phase, words); err != nil {
			return err
		}
	}
	return nil
}

func (m *database) cancelled(ctx context.Context, env *scenario.Environment) error {
	before, err := env.WaitPodReady(ctx, pod)
	if err != nil {
		return err
	}
	if err := request(ctx, env, api.AnnotationMoveTo, there); err != nil {
		return err
	}
	if err := allReach(ctx, env, api.MoveStopping, "pod "+pod+" still uses the volume"); err != nil {
		return err
	}
	if err := request(ctx, env, api.AnnotationMoveTo, none); err != nil {
		return err
	}
	if err := allReach(ctx, env, api.MoveCancelled, "the volume stays on node "+here); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return m.areOn(ctx, env, here) }); err != nil {
		return err
	}
	after, err := env.WaitPodReady(ctx, pod)
	if err == nil && scenario.ContainerOf(before) != scenario.ContainerOf(after) {
		err = fmt.Errorf("the container was %s and is %s", scenario.ContainerOf(before), scenario.ContainerOf(after))
	}
	return err
}

// moves moves the volumes under load.
func (m *database) moves(from, to string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		old, err := env.WaitPodReady(ctx, pod)
		if err != nil {
			return err
		}
		if err := copyAhead(ctx, env, to); err != nil {
			return err
		}
		begin, watch, err := m.stopUnderLoad(ctx, env)
		if err != nil {
			return err
		}
		if err := cluster.Eventually(ctx, func() error { return env.PodReplaced(ctx, pod, old.UID) }); err != nil {
			return err
		}
		if err := env.RunsOn(ctx, pod, to); err != nil {
			return errors.Join(err, fmt.Errorf("the phases were %v", watch()))
		}
		env.Reporter.Note("without service for %s: %s", time.Since(begin).Round(100*time.Millisecond), watch())
		if err := cluster.Eventually(ctx, func() error { return m.areOn(ctx, env, to) }); err != nil {
			return err
		}
		return errors.Join(m.rowsAreThere(ctx, env), formerCopiesOn(ctx, env, from))
	}
}

// copyAhead asks for a move, and waits until the thin volumes are copied.
func copyAhead(ctx context.Context, env *scenario.Environment, to string) error {
	if err := request(ctx, env, api.AnnotationMoveTo, to); err != nil {
		return err
	}
	if err := allReach(ctx, env, api.MoveStopping, "pod "+pod+" still uses the volume"); err != nil {
		return err
	}
	return areCopied(ctx, env)
}

// areCopied waits until the thin volumes are copied, while the pod uses them.
func areCopied(ctx context.Context, env *scenario.Environment) error {
	begin := time.Now()
	for _, claim := range thin {
		if err := reach(ctx, env, claim, api.MoveStopping, "the volume is copied, but for what changed lately"); err != nil {
			return err
		}
	}
	env.Reporter.Note("copied while the pod runs, in %s", time.Since(begin).Round(time.Second))
	return nil
}

// stopUnderLoad deletes the pod while pgbench and the writer commit. It returns when that was, and what describes the phases since.
func (m *database) stopUnderLoad(ctx context.Context, env *scenario.Environment) (begin time.Time, watch func() string, err error) {
	if _, err := env.ExecInPod(ctx, pod, "sh", "-c", "pgbench -n -c 2 -R 20 -T 3600 postgres >/dev/null 2>&1 &"); err != nil {
		return begin, nil, err
	}
	writer, err := env.StartWriter(ctx, pod, m.acked)
	if err != nil {
		return begin, nil, err
	}
	if err := writer.Reaches(ctx, m.acked+20); err != nil {
		return begin, nil, err
	}
	begin = time.Now()
	if watch, err = watchPhases(ctx, env); err != nil {
		return begin, nil, err
	}
	if err := env.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, pod, metav1.DeleteOptions{}); err != nil {
		return begin, nil, err
	}
	const all = 1 << 40
	if err := writer.Reaches(ctx, all); ctx.Err() != nil { // it ends with the server
		return begin, nil, err
	}
	m.acked = writer.Acked.Load()
	return begin, watch, nil
}

// rowsAreThere fails unless the database is consistent and has all acknowledged rows, and at most one more.
func (m *database) rowsAreThere(ctx context.Context, env *scenario.Environment) error {
	last, err := env.CheckRows(ctx, pod, m.acked, m.acked+1)
	if err != nil {
		return err
	}
	m.acked = last
	return env.CheckConsistent(ctx, pod)
}

// formerCopiesOn fails unless a node has the former copies of all claims.
func formerCopiesOn(ctx context.Context, env *scenario.Environment, node string) error {
	count, err := formerCopies(ctx, env, node)
	if err == nil && count != len(claims) {
		err = fmt.Errorf("%d former copies are on %s, not %d", count, node, len(claims))
	}
	return err
}

func finish(node string) func(context.Context, *scenario.Environment) error {
	return func(ctx context.Context, env *scenario.Environment) error {
		if err := request(ctx, env, api.AnnotationMoveFinish, node); err != nil {
			return err
		}
		return cluster.Eventually(ctx, func() error { return onlyPoolsOn(ctx, env, node) })
	}
}

func end(ctx context.Context, env *scenario.Environment) error {
	return scenario.InOrder(scenario.DeleteEverything, scenario.NoVolumesRemain, scenario.RestoreDriver)(ctx, env)
}
