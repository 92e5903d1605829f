package main

import (
	"os"
	"runtime/debug"
)

// garbagePercent is how much the heap grows, relative to what is in use, before Go collects garbage: half of Go's default. Each object of the cluster that
// a watch brings becomes garbage at once, and a tenant's claims have up to 1.5 MiB. A limit in bytes would have Go collect all the time on a node where
// more than that is in use.
const garbagePercent = 50

// limitGarbage sets the percentage, unless the environment has one.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
}
