package main

import (
	"os"
	"runtime/debug"
)

// memoryGoal is the size of the heap from which on Go collects garbage more often. Each object of the cluster that a watch brings becomes garbage at once,
// and a tenant's claims have up to 1.5 MiB: by default the heap would grow to twice what is in use before it is collected. More than the goal is in use only
// on nodes with far more volumes than usual; the driver then gets that memory all the same.
const memoryGoal = 40 << 20

// limitGarbage sets the goal, unless the environment has one.
func limitGarbage() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryGoal)
	}
}
