//go:build e2e

package e2e

import (
	"context"
	"os"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// TestScenario plays the acts of `make demo`, a subtest each.
func TestScenario(t *testing.T) {
	l, err := lab.Open("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	stage, err := scenario.Raise(t.Context(), l, os.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	for _, act := range scenario.Acts() {
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
