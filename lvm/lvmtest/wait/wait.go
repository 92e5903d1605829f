// Package wait lets tests wait for conditions. A test names the longest time that the condition takes on an idle machine; the limit
// grows with the slowness of this machine, which the test suite measures once a run. So a test fails because something does not
// happen, not because the machine is slow.
package wait

import (
	"os"
	"strconv"
	"time"
)

// Variable is the environment variable with the slowness of this machine: 2 means that it needs twice the time of an idle machine of
// the kind on which the limits were set. Without it, the slowness is 1.
const Variable = "NODELVM_TEST_SLOWNESS"

// Limit returns the limit for what takes at most d on an idle machine.
func Limit(d time.Duration) time.Duration {
	slowness, err := strconv.ParseFloat(os.Getenv(Variable), 64)
	if err != nil || slowness < 1 {
		return d
	}
	return time.Duration(float64(d) * slowness)
}

// T is the part of testing.TB that For uses. So programs of the tests need not link package testing.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// For waits until holds returns true, and ends the test if that takes longer than the limit for most. what names the condition:
// "the volume is ready". holds runs at least once.
func For(t T, most time.Duration, what string, holds func() bool) {
	t.Helper()
	if limit := Limit(most); !Holds(limit, holds) {
		t.Fatalf("not within %s: %s", limit.Round(time.Second), what)
	}
}

// Holds reports whether holds returns true within the limit.
func Holds(limit time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(interval) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// interval is the time between two checks of a condition.
const interval = 5 * time.Millisecond
