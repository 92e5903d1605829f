//go:build e2e

package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/test/scenario/hostile"
)

// TestHostileClient lets a tenant attack with objects and requests for NODELVM_TEST_HOSTILE (5m by default), while drivers are killed, and compares how fast
// another namespace is served. It needs volume groups without volumes.
func TestHostileClient(t *testing.T) {
	length := 5 * time.Minute
	if text := os.Getenv("NODELVM_TEST_HOSTILE"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil || length < time.Minute {
			t.Fatalf("NODELVM_TEST_HOSTILE=%s: want a duration of a minute or more, such as 1h", text)
		}
	}
	play(t, hostile.Scenarios(length, seed(t)))
}
