package main

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"
)

// idleTime is how long calibrate takes on an idle machine of the kind on which the tests' time limits were set: two processors that
// the hypervisor shares with other machines.
const idleTime = 900 * time.Millisecond

// slownessOfMachine compares this machine, with what else it does now, to that one; at least 1.
func slownessOfMachine() float64 { return max(1, calibrate().Seconds()/idleTime.Seconds()) }

// calibrate returns the time in which each processor sorts the same numbers.
func calibrate() time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, 2))
			numbers := make([]uint64, 1<<23)
			for i := range numbers {
				numbers[i] = random.Uint64()
			}
			slices.Sort(numbers)
		})
	}
	all.Wait()
	return time.Since(began)
}
