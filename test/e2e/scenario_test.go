//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// raised is the one cluster that all scenarios are run in: raising it costs a minute.
var raised = sync.OnceValues(func() (*scenario.Environment, error) {
	l, err := lab.Open("")
	if err != nil {
		return nil, err
	}
	lower = func() error { return l.Down(context.Background()) }
	return scenario.Raise(context.Background(), l, os.Stdout)
})

var lower = func() error { return nil }

// With KEEP=1 the cluster stays up: the next run finds it, and -run 'TestVolumeLifecycle/words_of_a_title' runs one scenario again.
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

// The scenarios are in the order of one run: each must work with what the previous one leaves.

// TestDemo runs the scenarios of `make demo`, a subtest each, but for the last, and details that the demo leaves out. It wants a fresh cluster.
func TestDemo(t *testing.T) { play(t, scenario.Whole()) }

// TestDocs follows the tutorial and two how-to guides, as written. It wants the cluster that the demo leaves.
func TestDocs(t *testing.T) { play(t, scenario.Docs(docrun.Short())) }

// TestHelm runs an installation from blank disks, an update and a removal. It wants groups without volumes.
func TestHelm(t *testing.T) { play(t, scenario.Helm()) }

// TestVolumeLifecycle runs how volumes grow, are snapshotted and are copied. It leaves thin pools, as all that follow.
func TestVolumeLifecycle(t *testing.T) { play(t, scenario.VolumeLifecycle()) }

// TestTenantAttacks runs a tenant who attacks other tenants and the node from a raw block volume.
func TestTenantAttacks(t *testing.T) { play(t, scenario.TenantAttacks()) }

// TestNodeLoss runs how a node is lost with its volumes, and comes back with them.
func TestNodeLoss(t *testing.T) { play(t, scenario.NodeLoss()) }

// TestPlacement runs where volumes go: fresh capacity, power cuts.
func TestPlacement(t *testing.T) { play(t, scenario.Placement(seed(t))) }

// TestNodeReboot shuts a node down, with volumes of every layout, and boots it.
func TestNodeReboot(t *testing.T) { play(t, scenario.NodeReboot()) }

// TestPlantedFaults plants twelve faults; a command of the plugin explains each within a minute.
func TestPlantedFaults(t *testing.T) { play(t, scenario.PlantedFaults()) }

// TestEncryption runs databases on encrypted volumes, with copies, new, lost and wrong keys, and a reboot.
func TestEncryption(t *testing.T) { play(t, scenario.Encryption()) }

// TestPairs starts 30 pods with two claims each on nodes that only some pairs fit on, NODELVM_TEST_PAIRS_RUNS times.
func TestPairs(t *testing.T) {
	play(t, scenario.PodPairs(number(t, "NODELVM_TEST_PAIRS_RUNS", 1), seed(t)))
}

// TestPodsWithSeveralClaims runs how the volumes of one pod are placed.
func TestPodsWithSeveralClaims(t *testing.T) { play(t, scenario.PodsWithSeveralClaims()) }

// TestDocsLong follows the other how-to guides. It leaves the cluster without the driver.
func TestDocsLong(t *testing.T) { play(t, scenario.Docs(docrun.Long())) }

// failed names the scenarios that did not hold.
var failed []string

func play(t *testing.T, scenarios []scenario.Scenario) {
	env, err := raised()
	if err != nil {
		t.Fatal(err)
	}
	if len(failed) > 0 {
		t.Logf("this cluster is as these tests left it, which failed: %v. What fails here may come of that", failed)
	}
	defer func() {
		if t.Failed() {
			failed = append(failed, t.Name())
		}
	}()
	for _, sc := range scenarios {
		held := t.Run(sc.Title, func(t *testing.T) {
			err := env.Run(t.Context(), sc)
			var failure *scenario.Failure
			if errors.As(err, &failure) { // its name is in each list of failures
				t.Run(failure.Step, func(t *testing.T) { t.Fatal(failure.Err, env.Diagnosis(t.Context())) })
			} else if err != nil {
				t.Fatal(err)
			}
		})
		if !held {
			t.Fatal("the later scenarios build on this one")
		}
	}
}

// seed is NODELVM_TEST_SEED, or a new one, which the scenario prints.
func seed(t *testing.T) uint64 {
	if os.Getenv("NODELVM_TEST_SEED") == "" {
		return rand.Uint64N(1 << 32)
	}
	return uint64(number(t, "NODELVM_TEST_SEED", 0))
}

// number reads a setting, which must be positive: with zero repetitions a test would check nothing.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: want a whole number, 1 or more", name, text)
	}
	return n
}

// TestDataPath prints what fio in a pod reaches on each kind of volume, relative to a bare logical volume. It wants an idle machine.
func TestDataPath(t *testing.T) { play(t, scenario.DataPath()) }

// TestInstanceStore replaces a node and its disks by a node of another name with blank disks. It wants groups without volumes.
func TestInstanceStore(t *testing.T) { play(t, scenario.InstanceStore()) }

// TestUnusualNodes runs a volume's life on a node without lvm2 and udev rules, and on one with a read-only /usr and /etc.
func TestUnusualNodes(t *testing.T) { play(t, scenario.UnusualNodes()) }
