package capacity

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// pairs is many pods with two claims each, on nodes with room for some of them and a half.
type pairs struct {
	count int     // pods
	room  []int64 // by node: how many whole pairs it holds
	mib   [2]int64
	pods  []podWanted
}

// PodPairs returns so many runs of 30 pods with two claims each, on nodes that have room for 20 of them, and on each node
// for one claim more. The seed decides how the room is spread and how large the claims are.
func PodPairs(runs int, seed uint64) (scenarios []scenario.Scenario) {
	for run := range uint64(runs) { //nolint:gosec // a handful
		scenarios = append(scenarios, newPairs(30, 20, rand.New(rand.NewPCG(seed, run))).scenario(run+1, seed)) //nolint:gosec // a test's choice
	}
	return scenarios
}

func newPairs(count, whole int, random *rand.Rand) *pairs {
	p := &pairs{count: count, room: []int64{1, 1, 1}}
	for range whole - len(p.room) {
		p.room[random.IntN(len(p.room))]++
	}
	p.mib = [2]int64{8 * (1 + random.Int64N(5)), 8 * (1 + random.Int64N(5))}
	for i := range count {
		p.pods = append(p.pods, podWanted{name: fmt.Sprintf("pair-%02d", i), volumes: []volumeWanted{
			{name: "a", mib: p.mib[0]}, {name: "b", mib: p.mib[1], ephemeral: random.IntN(3) == 0}}})
	}
	return p
}

// left is the room on a node: so many pairs, and one of the larger volume more.
func (p *pairs) left(node int) int64 {
	return p.room[node]*(p.mib[0]+p.mib[1]) + max(p.mib[0], p.mib[1])
}

func (p *pairs) scenario(run, seed uint64) scenario.Scenario {
	whole := p.room[0] + p.room[1] + p.room[2]
	return scenario.Scenario{Title: fmt.Sprintf("%d pods with two claims, and room for %d of them (run %d of seed %d)", p.count, whole, run, seed), Steps: []scenario.Step{
		{Says: fmt.Sprintf("an admin leaves room for %v pairs of %v MiB, and for half a pair more on each node", p.room, p.mib),
			Prove: leave(p.left(0), p.left(1), p.left(2))},
		{Says: fmt.Sprintf("%d run, and no volume is there but theirs", whole), Prove: func(ctx context.Context, env *scenario.Environment) error {
			return p.begin(ctx, env, int(whole))
		}},
		{Says: "that remains so: no volume is created for the pods that wait", Prove: func(ctx context.Context, env *scenario.Environment) error {
			for range 10 {
				if err := p.settled(ctx, env, int(whole)); err != nil {
					return err
				}
				time.Sleep(time.Second)
			}
			return nil
		}},
		{Says: "the admin frees extents: the other pods run too, without help", Prove: func(ctx context.Context, env *scenario.Environment) error {
			began := time.Now()
			if err := dropFillers(ctx, env); err != nil {
				return err
			}
			err := cluster.Eventually(ctx, func() error { return p.settled(ctx, env, p.count) })
			env.Reporter.Note("after %s", time.Since(began).Round(time.Second))
			return err
		}},
		{Says: "they are deleted, and nothing is left", Prove: endTogether},
	}}
}

// begin creates the pods, and tells how long those took that can run, and how often a node had to refuse a claim: it had
// given its last room to others since it published it.
func (p *pairs) begin(ctx context.Context, env *scenario.Environment, whole int) error {
	before, err := failedCreates(ctx, env)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, pod := range p.pods {
		if err := pod.create(ctx, env); err != nil {
			return err
		}
	}
	if err := cluster.Eventually(ctx, func() error { return p.settled(ctx, env, whole) }); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := failedCreates(ctx, env)
	if err == nil {
		env.Reporter.Note("after %s; %.0f CreateVolume calls were refused", took.Round(time.Second), after-before)
	}
	return err
}

// settled fails unless so many pods are Ready, and there are just their volumes.
func (p *pairs) settled(ctx context.Context, env *scenario.Environment, want int) error {
	ready, err := readyPods(ctx, env)
	if err != nil {
		return err
	}
	running, volumes := len(ready), 0
	for _, node := range env.Lab.NodeNames() {
		made, e := claimVolumes(ctx, env, node)
		volumes, err = volumes+len(made), errors.Join(err, e)
	}
	if err == nil && (running != want || volumes != 2*want) {
		err = fmt.Errorf("%d pods run with %d volumes in all, want %d with two each", running, volumes, want)
	}
	return err
}
