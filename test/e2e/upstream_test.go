//go:build e2e

package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/test/conformance"
)

// sample selects one spec of each part of Kubernetes' suite that depends most on the driver; `make conformance` runs all specs.
var sample = []string{
	`^linear .*\(default fs\)\] capacity provides storage capacity information$`,
	`^linear .*\(delayed binding\)\] topology should provision a volume and schedule a pod with AllowedTopologies$`,
	`^linear .*\(block volmode\)\] volumes should store data$`,
	`^thin .*Dynamic Snapshot \(delete policy\)\] snapshottable .*after modifying source data, check deletion \(persistent\)$`,
}

// TestConformance runs a sample of Kubernetes' suite, and checks that docs/development/conformance.md lists the excluded specs. Its
// file's name makes it run after the scenarios.
func TestConformance(t *testing.T) {
	env, err := raised()
	must(t, err)
	dir := filepath.Join(env.Lab.Logs(), "conformance")
	if err := os.RemoveAll(dir); err != nil { // results of another build of the driver
		t.Fatal(err)
	}
	only := regexp.MustCompile(strings.Join(sample, "|"))
	ctx, stop := env.Lab.WhileHealthy(t.Context())
	defer stop()
	summary, err := conformance.Run(ctx, conformance.Options{
		Lab: env.Lab, Dir: dir, Only: only, Jobs: 2, Limit: 15 * time.Minute, Out: os.Stdout,
	})
	if err != nil {
		t.Fatal(errors.Join(context.Cause(ctx), err))
	}
	var specs []conformance.Spec
	for _, s := range summary.Claimed() {
		if only.MatchString(s.Class + " " + s.Text) {
			specs = append(specs, s)
		}
	}
	if len(specs) != len(sample) {
		t.Errorf("%d specs are in the sample, want one for each of its %d lines: %v", len(specs), len(sample), specs)
	}
	for _, why := range summary.NotPassed(specs) {
		t.Error(why)
	}
	t.Run("documented", func(t *testing.T) {
		text, err := os.ReadFile("../../docs/development/conformance.md")
		must(t, err)
		for _, want := range []string{summary.Numbers(), conformance.ExclusionTable(summary.Specs)} {
			if !strings.Contains(string(text), want) {
				t.Errorf("docs/development/conformance.md lacks:\n%s", want)
			}
		}
	})
}
