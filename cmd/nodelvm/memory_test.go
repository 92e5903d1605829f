package main

import (
	"runtime/debug"
	"testing"
)

// TestGarbageIsLimited: the driver collects garbage earlier than Go does by default, and an admin's GOGC counts instead.
func TestGarbageIsLimited(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	for variable, want := range map[string]int{"": garbagePercent, "200": 100} {
		debug.SetGCPercent(100)
		t.Setenv("GOGC", variable)
		limitGarbage()
		if is := debug.SetGCPercent(100); is != want {
			t.Errorf("GOGC=%q: the percentage is %d, want %d", variable, is, want)
		}
	}
}
