//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// raised is the one cluster that all stories are played in: raising it costs a minute.
var raised = sync.OnceValues(func() (*scenario.Stage, error) {
	l, err := lab.Open("")
	if err != nil {
		return nil, err
	}
	lower = func() error { return l.Down(context.Background()) }
	return scenario.Raise(context.Background(), l, os.Stdout)
})

var lower = func() error { return nil }

// With KEEP=1 the cluster stays up: the next run finds it, and -run 'TestLife/words_of_a_title' plays one act again.
func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("KEEP") != "" {
		os.Exit(code)
	}
	if err := lower(); err != nil {
		fmt.Fprintln(os.Stderr, "lowering the lab:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// TestScenario plays the acts of `make demo`, a subtest each.
func TestScenario(t *testing.T) { play(t, scenario.Acts()) }

// TestLife plays how volumes grow, are snapshotted and are copied.
func TestLife(t *testing.T) { play(t, scenario.LifeActs()) }

// TestLost plays how a node is lost with its volumes, and comes back with them.
func TestLost(t *testing.T) { play(t, scenario.LostActs()) }

func play(t *testing.T, acts []scenario.Act) {
	stage, err := raised()
	if err != nil {
		t.Fatal(err)
	}
	for _, act := range acts {
		held := t.Run(act.Title, func(t *testing.T) {
			if err := stage.Play(t.Context(), act); err != nil {
				t.Fatal(err, stage.Diagnosis(t.Context()))
			}
		})
		if !held {
			t.Fatal("the later acts build on this one")
		}
	}
}
