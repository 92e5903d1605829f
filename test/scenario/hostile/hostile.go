package hostile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	mostTimes  = 2.0      // as long as without the attack
	mostMemory = 80 << 10 // KiB of the driver on each node
	eachNode   = 2        // rounds of the user on each node without the attack, and at least so many during it
)

// attack is what one step leaves for the next to know.
type attack struct {
	length time.Duration
	seed   uint64

	free          map[string]scenario.GroupState // by node, before the first volume
	user          *user
	tenant        *tenant
	normal, under []round
	memory        *memory
}

// Scenarios returns the attack. It needs volume groups without volumes.
func Scenarios(length time.Duration, seed uint64) []scenario.Scenario {
	a := &attack{length: length, seed: seed, free: map[string]scenario.GroupState{}, memory: newMemory()}
	return []scenario.Scenario{{Title: "A tenant attacks with objects, and the drivers are killed", Steps: []scenario.Step{
		{Says: "a user has a pod with data on each node; the capacity before is noted", Prove: a.begin},
		{Says: fmt.Sprintf("the user creates, expands, snapshots, restores and deletes a volume %d times on each node", eachNode), Limit: 20 * time.Minute, Prove: a.normally},
		{Says: fmt.Sprintf("the tenant creates %d malicious objects; its quota ends its snapshots, and a policy refuses claims that would stop the scheduler", objects), Prove: a.objectsAreCreated},
		{Says: fmt.Sprintf("for %s the tenant's client creates, expands, snapshots and deletes, and drivers are killed: the user's work succeeds", length), Limit: 2*length + 20*time.Minute, Prove: a.attacked},
		{Says: "the user's pods were not restarted, and their data is there", Prove: a.dataIsThere},
		{Says: "the tenant's namespace is deleted, and no PersistentVolume, content or volume of it remains", Limit: 20 * time.Minute, Prove: a.tenantLeaves},
		{Says: "everything is deleted: no device remains, and the capacity is as before", Limit: 15 * time.Minute, Prove: a.end},
		{Says: fmt.Sprintf("at the median the user's work takes at most %.0f times as long, more only as far as pods without a volume do", mostTimes), Prove: a.userIsServed},
		{Says: fmt.Sprintf("the driver's resident memory never exceeded %d MiB on any node", mostMemory>>10), Prove: a.memoryIsBounded},
	}}}
}

func (a *attack) begin(ctx context.Context, env *scenario.Environment) error {
	env.Reporter.Note("the seed is %d", a.seed)
	if err := scenario.CapacityIsPublished(ctx, env); err != nil {
		return err
	}
	if err := errors.Join(scenario.CreateClasses(ctx, env), scenario.NoVolumesRemain(ctx, env)); err != nil {
		return err
	}
	for _, node := range env.Lab.NodeNames() {
		now, err := env.GroupState(ctx, node)
		if err != nil {
			return err
		}
		a.free[node] = now
	}
	var err error
	if a.user, err = newUser(env); err != nil {
		return err
	}
	if a.tenant, err = newTenant(env, rand.New(rand.NewPCG(a.seed, 0))); err != nil { //nolint:gosec // what is tried, not a secret
		return err
	}
	return a.user.keep(ctx)
}

func (a *attack) normally(ctx context.Context, env *scenario.Environment) error {
	for range eachNode {
		for _, node := range env.Lab.NodeNames() {
			took, err := a.user.round(ctx, node)
			if err != nil {
				return err
			}
			a.normal = append(a.normal, took)
		}
	}
	env.Reporter.Note("the whole took %.1f s at the median", medianOf(a.normal, whole).Seconds())
	return nil
}

func (a *attack) objectsAreCreated(ctx context.Context, env *scenario.Environment) error {
	if err := env.ApplyWith(ctx, "hostile-tenant.yaml", "SNAPSHOTS", fmt.Sprint(snapshotQuota)); err != nil {
		return err
	}
	if err := a.tenant.createObjects(ctx); err != nil {
		return err
	}
	return errors.Join(a.tenant.schedulerIsSafe(ctx), a.tenant.snapshotsAreBounded(ctx))
}

// attacked lets the user work until the time has passed, and on each node at least as often as without the attack.
func (a *attack) attacked(ctx context.Context, env *scenario.Environment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	killer := &killer{random: rand.New(rand.NewPCG(a.seed, 1)), count: map[string]int{}, last: map[string]time.Time{}} //nolint:gosec // what is tried, not a secret
	var all sync.WaitGroup
	for _, work := range []func(context.Context, *scenario.Environment){a.tenant.work, killer.work, a.memory.work} {
		all.Go(func() { work(ctx, env) })
	}
	failed := a.works(ctx, env)
	cancel()
	all.Wait()
	a.show(env, killer)
	return errors.Join(failed, a.tenant.hasWorked(), killer.hasKilled())
}

func (a *attack) works(ctx context.Context, env *scenario.Environment) error {
	nodes := env.Lab.NodeNames()
	for began := time.Now(); time.Since(began) < a.length || len(a.under) < eachNode*len(nodes); {
		took, err := a.user.round(ctx, nodes[len(a.under)%len(nodes)])
		if err != nil {
			return fmt.Errorf("round %d: %w", len(a.under)+1, err)
		}
		a.under = append(a.under, took)
		env.Reporter.Note("round %d: %s", len(a.under), took)
	}
	return nil
}

// userIsServed allows for what the driver has no part in: the machine, which other work may load, and the rest of Kubernetes.
func (a *attack) userIsServed(context.Context, *scenario.Environment) error {
	ratio, others := a.ratio(whole), max(1, a.ratio(bare))
	if ratio > mostTimes*others {
		return fmt.Errorf("%.2f times as long, and pods without a volume %.2f times", ratio, others)
	}
	return nil
}

// ratio compares the median time of a part under the attack with the normal one.
func (a *attack) ratio(part int) float64 {
	return medianOf(a.under, part).Seconds() / medianOf(a.normal, part).Seconds()
}

func (a *attack) memoryIsBounded(_ context.Context, env *scenario.Environment) error {
	return a.memory.check(env.Lab.NodeNames(), a.length)
}

func (a *attack) dataIsThere(ctx context.Context, _ *scenario.Environment) error {
	return a.user.check(ctx)
}

func (a *attack) tenantLeaves(ctx context.Context, env *scenario.Environment) error {
	began := time.Now()
	if _, err := env.Kubectl(ctx, "", "delete", "namespace", tenantsNamespace, "--wait", "--timeout=15m"); err != nil {
		return err
	}
	err := cluster.Eventually(ctx, func() error {
		if err := a.user.isAlone(ctx); err != nil {
			return err
		}
		for _, node := range env.Lab.NodeNames() {
			if err := env.CheckNoneLeaked(ctx, node); err != nil {
				return err
			}
		}
		return nil
	})
	env.Reporter.Note("after %.0f s", time.Since(began).Seconds())
	return err
}

func (a *attack) end(ctx context.Context, env *scenario.Environment) error {
	if err := errors.Join(scenario.DeleteEverything(ctx, env), scenario.NoVolumesRemain(ctx, env)); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			if now, err := env.GroupState(ctx, node); err != nil || now != a.free[node] {
				return errors.Join(err, fmt.Errorf("%s had %+v and has %+v", node, a.free[node], now))
			}
			if err := env.CheckPublishedCapacity(ctx, scenario.GrowingClass, node, a.free[node].Capacity()); err != nil {
				return err
			}
			if devices, err := env.RunOnNode(ctx, node, "dmsetup", "info", "-c", "--noheadings", "-o", "name"); err != nil || string(devices) != "No devices found\n" {
				return errors.Join(err, fmt.Errorf("%s has devices: %s", node, devices))
			}
		}
		return nil
	})
}

// dynamicClient returns a client for any kind of object; as "" is the cluster's admin.
func dynamicClient(env *scenario.Environment, as string) (*dynamic.DynamicClient, error) {
	config, err := env.Lab.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.Impersonate.UserName = as
	return dynamic.NewForConfig(config)
}
