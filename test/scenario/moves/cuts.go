package moves

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// The sides of a move.
const (
	onSource = "source"
	onTarget = "target"
	onBoth   = "both"
)

var sides = []string{onSource, onTarget, onBoth}

// outage is a power cut in a stage of a move.
type outage struct {
	side string  // none: the stage has no power cut
	at   float64 // when: a share of the time that the stage takes without power cuts

	cancel bool // what the user does if the pod cannot start again: cancel the move and ask again, or delete the pod
}

// draw chooses the stages of moves in which the power fails, so many times in all, and the moments.
func draw(random *rand.Rand, count int) (moves [][]outage) {
	for count > 0 {
		move := make([]outage, len(stages))
		for i := range move {
			if count > 0 && random.IntN(2) > 0 {
				move[i] = outage{side: sides[random.IntN(len(sides))], at: random.Float64(), cancel: random.IntN(2) > 0}
				count--
			}
		}
		moves = append(moves, move)
	}
	return moves
}

// cuts is a series of moves to and fro with power cuts.
type cuts struct {
	database
	count, done int
	lasts       []time.Duration  // how long each stage takes without power cuts
	met         []map[string]int // the power cuts, by stage and side

	writer *cluster.Writer // nil: no pod serves
	hangUp context.CancelFunc
}

// PowerCuts returns the scenario of moves with so many power cuts; the seed decides where and when.
func PowerCuts(count int, seed uint64) []scenario.Scenario {
	c := &cuts{database: database{data: "256Mi", wal: "192Mi"}, count: count, met: make([]map[string]int, len(stages))}
	for i := range c.met {
		c.met[i] = map[string]int{}
	}
	steps := []scenario.Step{
		{Says: "the driver runs with move.enabled", Prove: func(ctx context.Context, env *scenario.Environment) error {
			env.Reporter.Note("the seed is %d", seed)
			return env.ApplyChart(ctx, "move.enabled=true")
		}},
		{Says: "a PostgreSQL server has thin volumes for its data and its write-ahead log, and a small linear one, on " + here, Prove: c.start},
		{Says: "under pgbench the volumes move to " + there, Prove: c.measure},
	}
	from, to := there, here
	for _, plan := range draw(rand.New(rand.NewPCG(seed, 0)), count) { //nolint:gosec // what is tried, not a secret
		failing := len(slices.DeleteFunc(slices.Clone(plan), func(o outage) bool { return o.side == none }))
		steps = append(steps, scenario.Step{
			Says:  fmt.Sprintf("the volumes move to %s, and the power fails %d times: each time one copy of each volume is the claim's, and every acknowledged row is there", to, failing),
			Limit: time.Duration(1+failing) * 5 * time.Minute,
			Prove: (&journey{cuts: c, from: from, to: to, plan: plan}).run,
		})
		from, to = to, from
	}
	steps = append(steps,
		scenario.Step{Says: "each cut was judged", Prove: c.report},
		scenario.Step{Says: "everything is deleted, and the driver is as shipped", Prove: func(ctx context.Context, env *scenario.Environment) error {
			c.disconnect()
			return end(ctx, env)
		}})
	return []scenario.Scenario{{Title: "The power fails while a database moves", Steps: steps}}
}

// measure moves the volumes without power cuts.
func (c *cuts) measure(ctx context.Context, env *scenario.Environment) error {
	if err := c.connect(ctx, env); err != nil {
		return err
	}
	j := &journey{cuts: c, from: here, to: there, plan: make([]outage, len(stages))}
	err := j.run(ctx, env)
	c.lasts = j.spent
	return err
}

// report prints which cuts there were.
func (c *cuts) report(_ context.Context, env *scenario.Environment) error {
	var rows [][]string
	for i, s := range stages {
		row := []string{s.name, c.lasts[i].Round(100 * time.Millisecond).String()}
		for _, side := range sides {
			row = append(row, strconv.Itoa(c.met[i][side]))
		}
		rows = append(rows, row)
	}
	env.Reporter.Table([]string{"POWER CUTS", "STAGE TAKES", "SOURCE", "TARGET", "BOTH"}, rows)
	if c.done != c.count {
		return fmt.Errorf("%d cuts, not %d", c.done, c.count)
	}
	return nil
}

// connect waits until the pod serves again, compares the rows with those acknowledged before, and starts pgbench and a writer.
func (c *cuts) connect(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.ExecInPodAgain(ctx, pod, "pg_isready", "-q"); err != nil {
		return err
	}
	var err error
	if c.acked, err = env.CheckRows(ctx, pod, c.acked, c.acked+1); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, pod, "sh", "-c", "pgbench -n -c 2 -R 20 -T 3600 postgres >/dev/null 2>&1 &"); err != nil {
		return err
	}
	writing, hangUp := context.WithCancel(context.WithoutCancel(ctx)) // it writes on in the next step
	writer, err := env.StartWriter(writing, pod, c.acked)
	if err != nil {
		hangUp()
		return err
	}
	c.writer, c.hangUp = writer, hangUp
	return writer.Reaches(ctx, c.acked+5)
}

// disconnect is for a server that is gone. A node without power says no farewell.
func (c *cuts) disconnect() {
	if c.writer == nil {
		return
	}
	c.hangUp()
	_ = c.writer.Stop() // with an error, of course
	c.acked, c.writer = c.writer.Acked.Load(), nil
}

// cut cuts the power in a stage of the move, boots, and judges.
func (j *journey) cut(ctx context.Context, env *scenario.Environment, i int) error {
	failing := map[string][]string{onSource: {j.from}, onTarget: {j.to}, onBoth: {j.from, j.to}}[j.plan[i].side]
	after := time.Duration(j.plan[i].at * float64(j.lasts[i]))
	time.Sleep(after)
	c, err := env.Claim(ctx, thin[0])
	if err != nil {
		return err
	}
	status, _ := api.MoveStatusOf(c.Annotations)
	j.done++
	j.met[i][j.plan[i].side]++
	env.Reporter.Note("cut %d: %s, %s after %s; %s: %s", j.done, j.plan[i].side, stages[i].name, after.Round(time.Millisecond), status.Phase, status.Message)
	began := time.Now()
	if err := j.powerCycle(ctx, env, failing); err != nil {
		return err
	}
	booted := time.Since(began)
	if err := oneIsAuthoritative(ctx, env, j.from, claims); err != nil {
		return err
	}
	for _, node := range failing {
		if err := driverRuns(ctx, env, node); err != nil {
			return err
		}
	}
	driver := time.Since(began)
	if slices.Contains(failing, j.server(i)) {
		if err := j.servesAgain(ctx, env, j.plan[i].cancel); err != nil {
			return err
		}
	}
	env.Reporter.Note("cut %d: booted after %.1f s, the driver runs after %.1f s, judged after %.1f s", j.done, booted.Seconds(), driver.Seconds(), time.Since(began).Seconds())
	return nil
}

// powerCycle cuts the power of nodes, and boots them.
func (j *journey) powerCycle(ctx context.Context, env *scenario.Environment, nodes []string) error {
	var failed []error
	for _, node := range nodes {
		failed = append(failed, env.Lab.PowerCut(node))
	}
	if slices.Contains(nodes, j.serving) {
		j.disconnect()
	}
	booted := make([]error, len(nodes))
	var boots sync.WaitGroup
	for i, node := range nodes {
		boots.Go(func() { booted[i] = env.Lab.Boot(ctx, node) })
	}
	boots.Wait()
	return errors.Join(append(failed, booted...)...)
}

// driverRuns waits until a node that booted runs the driver.
func driverRuns(ctx context.Context, env *scenario.Environment, node string) error {
	return cluster.Eventually(ctx, func() error {
		_, err := env.RunOnNode(ctx, node, "pgrep", "-ox", "nodelvm")
		return err
	})
}

// servesAgain waits until the pod serves again on the node that booted. If it cannot start there, because its volumes move away, it does as the status says.
func (j *journey) servesAgain(ctx context.Context, env *scenario.Environment, cancel bool) error {
	stuck := false
	err := cluster.Eventually(ctx, func() error {
		brief, end := context.WithTimeout(ctx, 20*time.Second)
		defer end()
		if _, err := env.ExecInPod(brief, pod, "pg_isready", "-q"); err == nil {
			return nil
		}
		c, err := env.Claim(ctx, thin[0])
		if err != nil {
			return err
		}
		s, _ := api.MoveStatusOf(c.Annotations)
		if stuck = strings.Contains(s.Message, "cannot start again on node "+j.from); !stuck {
			return fmt.Errorf("the database does not answer, and the status is %+v%s", s, env.LastEvents(ctx, pod))
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case !stuck:
		return j.connect(ctx, env)
	case !cancel:
		env.Reporter.Note("the pod cannot start again: it is deleted")
		return j.stop(ctx, env)
	}
	env.Reporter.Note("the pod cannot start again: the move is cancelled, and asked for again")
	if err := request(ctx, env, api.AnnotationMoveTo, none); err != nil {
		return err
	}
	if err := allReach(ctx, env, api.MoveCancelled, ""); err != nil {
		return err
	}
	return scenario.InOrder(j.connect, j.ask, j.firstRound)(ctx, env)
}
