package main

import (
	"math"
	"runtime/debug"
	"testing"
)

// TestGarbageIsLimited: the driver sets a goal for its memory, and an admin's GOMEMLIMIT counts instead.
func TestGarbageIsLimited(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for variable, want := range map[string]int64{"": memoryGoal, "1GiB": math.MaxInt64} {
		debug.SetMemoryLimit(math.MaxInt64)
		t.Setenv("GOMEMLIMIT", variable)
		limitGarbage()
		if is := debug.SetMemoryLimit(-1); is != want {
			t.Errorf("GOMEMLIMIT=%q: the limit is %d, want %d", variable, is, want)
		}
	}
}
