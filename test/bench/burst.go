package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

// burstSizes are the numbers of concurrent requests.
var burstSizes = []int{1, 8, 32}

// burstClass has no wipe, which would only take time between the samples.
var burstClass = func() map[string]string {
	class := maps.Clone(thickClass)
	class["wipe"] = "none"
	return class
}()

// bursts creates many volumes concurrently, with bare commands and through the driver in turns.
func (m *meter) bursts(ctx context.Context, rounds int) error {
	for _, atOnce := range burstSizes {
		err := m.rounds(ctx, fmt.Sprintf("%d at once", atOnce), rounds, func(ctx context.Context, round string) error {
			names := make([]string, atOnce)
			for i := range names {
				names[i] = fmt.Sprintf("%s-%d-%d", round, atOnce, i)
			}
			if err := m.burstOfCommands(ctx, names); err != nil {
				return err
			}
			return m.burstOfCalls(ctx, names)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// together calls do for all names concurrently, and returns how long all calls took, and how long the slowest.
func together(names []string, do func(name string) error) (all, worst time.Duration, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	all, _ = timed(func() error {
		for _, name := range names {
			wg.Go(func() {
				took, failure := timed(func() error { return do(name) })
				mu.Lock()
				defer mu.Unlock()
				worst, err = max(worst, took), errors.Join(err, failure)
			})
		}
		wg.Wait()
		return nil
	})
	return all, worst, err
}

func (m *meter) burstOfCommands(ctx context.Context, names []string) error {
	if err := m.calm(ctx); err != nil {
		return err
	}
	all, worst, err := together(names, func(name string) error {
		return m.admin(ctx, "lvcreate", "-qq", "-y", "-L", "64M", "-n", name, group)
	})
	if err != nil {
		return err
	}
	if err := m.note("CreateBurst", len(names), Stock, map[string]float64{
		unitTime: float64(all), unitWorst: float64(worst), unitProcesses: float64(len(names)),
	}); err != nil {
		return err
	}
	remove := []string{"lvremove", "-qq", "-y"}
	for _, name := range names {
		remove = append(remove, group+"/"+name)
	}
	return m.admin(ctx, remove...)
}

func (m *meter) burstOfCalls(ctx context.Context, names []string) error {
	if err := m.calm(ctx); err != nil {
		return err
	}
	before, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	asking, stopAsking := context.WithCancel(ctx)
	asked := make(chan error, 1)
	go func() { asked <- m.askMeanwhile(asking, len(names)) }()
	all, worst, err := together(names, func(name string) error { return m.driver.create(ctx, burstClass, name, size) })
	stopAsking()
	if err := errors.Join(err, <-asked); err != nil {
		return err
	}
	answered, err := m.driver.activity(ctx)
	if err != nil {
		return err
	}
	after, err := m.driver.settled(ctx)
	if err != nil {
		return err
	}
	if _, _, err := together(names, func(name string) error { return m.driver.remove(ctx, name) }); err != nil {
		return err
	}
	if _, err := m.driver.settled(ctx); err != nil {
		return err
	}
	return m.note("CreateBurst", len(names), Nodelvm, map[string]float64{
		unitTime: float64(all), unitWorst: float64(worst), unitProcesses: answered.processes - before.processes,
		unitLater: float64(after.inLVM - answered.inLVM), unitLaterLVM: after.processes - answered.processes,
	})
}

// askEvery is the pause between two calls of GetCapacity during a burst; the provisioner calls it once a second.
const askEvery = 250 * time.Millisecond

// askMeanwhile takes samples of GetCapacity until ctx ends, while the driver creates volumes.
func (m *meter) askMeanwhile(ctx context.Context, atOnce int) error {
	for ctx.Err() == nil {
		took, err := timed(func() error { return m.driver.capacity(context.WithoutCancel(ctx)) })
		if err != nil {
			return err
		}
		if err := m.note("GetCapacityMeanwhile", atOnce, Nodelvm, map[string]float64{unitTime: float64(took)}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(askEvery):
		}
	}
	return nil
}
