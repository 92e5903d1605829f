package restart

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// cuts is a series of power cuts of one node, under a database's load and while volumes come and go there.
type cuts struct {
	count  int
	random *rand.Rand
	seed   uint64

	acked    int64     // the rows that the database has acknowledged
	workload *workload // who creates and deletes volumes meanwhile
	spent    []int64   // milliseconds from each cut until the database answered
}

// PowerCuts returns the scenario of so many power cuts; the seed decides when they come, and what they meet. It needs nothing of the others;
// the thin pools that it leaves on the nodes are meant to stay.
func PowerCuts(count int, seed uint64) []scenario.Scenario {
	return []scenario.Scenario{newCuts(count, seed).scenario()}
}

func newCuts(count int, seed uint64) *cuts {
	random := rand.New(rand.NewPCG(seed, 0))                                                                            //nolint:gosec // what is tried, not a secret
	return &cuts{count: count, seed: seed, random: random, workload: &workload{random: rand.New(rand.NewPCG(seed, 1))}} //nolint:gosec // the same
}

// cutLimit is for one cut: the node boots, its kubelet comes back, the database recovers.
const cutLimit = 15 * time.Minute

func (c *cuts) scenario() scenario.Scenario {
	return scenario.Scenario{Title: "The power fails while volumes are created, expanded, copied and deleted", Steps: []scenario.Step{
		{Says: "a PostgreSQL server runs on " + scenario.FirstNode, Prove: c.begin},
		{Says: fmt.Sprintf("%d times the node's power is cut: every acknowledged row is there, and nobody had to help", c.count),
			Limit: time.Duration(c.count) * cutLimit, Prove: c.cutAll},
		{Says: "interrupted work is completed: each claim has its volume, each snapshot is ready, and the node has no other volume", Limit: 20 * time.Minute, Prove: c.settles},
		{Says: "the database is consistent", Prove: c.consistent},
		{Says: "everything is deleted: no volume remains, and every extent is free or the pool's", Prove: c.end},
	}}
}

func (c *cuts) begin(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.CapacityIsPublished(ctx, env); err != nil {
		return err
	}
	env.Reporter.Note("the seed is %d", c.seed)
	return scenario.SmallDatabase(ctx, env)
}

func (c *cuts) cutAll(ctx context.Context, env *scenario.Environment) error {
	for n := range c.count {
		if err := c.cut(ctx, env, n+1); err != nil {
			return fmt.Errorf("cut %d, seed %d: %w", n+1, c.seed, err)
		}
	}
	slices.Sort(c.spent)
	env.Reporter.Note("from a cut until the database answered: %d ms at the median, %d at the worst", c.spent[len(c.spent)/2], c.spent[len(c.spent)-1])
	return nil
}

// cut cuts the power at a random moment and waits until the database has its rows again.
func (c *cuts) cut(ctx context.Context, env *scenario.Environment, n int) error {
	writing, hangUp := context.WithCancel(ctx)
	defer hangUp()
	writer, err := env.StartWriter(writing, scenario.DatabasePod, c.acked)
	if err != nil {
		return err
	}
	if err := writer.Reaches(ctx, c.acked+1); err != nil {
		return err
	}
	stopWorkload := c.workload.start(ctx, env)
	after := time.Duration(c.random.Int64N(int64(8 * time.Second)))
	time.Sleep(after)
	began := time.Now()
	cut := env.Lab.PowerCut(scenario.FirstNode)
	worked := stopWorkload()
	under, lost := c.workload.underWay(ctx, env)
	hangUp() // a dead node says no farewell
	noticed := writer.Stop()
	acked := writer.Acked.Load()
	booted := env.Lab.Boot(ctx, scenario.FirstNode) // whatever went wrong: other scenarios need the node
	if err := errors.Join(cut, worked, lost, booted); err != nil {
		return err
	}
	if noticed == nil {
		return errors.New("the writer did not notice the cut")
	}
	if _, err := env.ExecInPodAgain(ctx, scenario.DatabasePod, "psql", "-qtA", "-c", "select", "postgres"); err != nil {
		return err
	}
	c.spent = append(c.spent, time.Since(began).Milliseconds())
	env.Reporter.Note("cut %d after %s, while %s", n, after.Round(time.Millisecond), under)
	last, err := env.CheckRows(ctx, scenario.DatabasePod, acked, acked+1)
	if err != nil {
		return err
	}
	c.acked = last
	return nil
}

func (c *cuts) settles(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		under, err := c.workload.underWay(ctx, env)
		if err == nil && under != nothing {
			err = fmt.Errorf("there are still %s", under)
		}
		if err != nil {
			return err
		}
		return env.CheckNoneLeaked(ctx, scenario.FirstNode)
	})
}

func (c *cuts) consistent(ctx context.Context, env *scenario.Environment) error {
	if out, err := env.ExecInPod(ctx, scenario.DatabasePod, "pg_amcheck", "--install-missing", "--heapallindexed", "postgres"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (c *cuts) end(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.DeleteSnapshots, scenario.DeleteEverything)(ctx, env); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) }); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		now, err := env.GroupState(ctx, scenario.FirstNode)
		if err != nil {
			return err
		}
		return env.CheckPublishedCapacity(ctx, scenario.GrowingClass, scenario.FirstNode, now.Capacity())
	})
}
