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
	"time"

	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
	"github.com/nodelvm/nodelvm/test/scenario/attack"
	"github.com/nodelvm/nodelvm/test/scenario/backup"
	"github.com/nodelvm/nodelvm/test/scenario/capacity"
	"github.com/nodelvm/nodelvm/test/scenario/demo"
	"github.com/nodelvm/nodelvm/test/scenario/encryption"
	"github.com/nodelvm/nodelvm/test/scenario/faults"
	"github.com/nodelvm/nodelvm/test/scenario/groups"
	"github.com/nodelvm/nodelvm/test/scenario/hostile"
	"github.com/nodelvm/nodelvm/test/scenario/install"
	"github.com/nodelvm/nodelvm/test/scenario/iolimits"
	"github.com/nodelvm/nodelvm/test/scenario/lifecycle"
	"github.com/nodelvm/nodelvm/test/scenario/measure"
	"github.com/nodelvm/nodelvm/test/scenario/moves"
	"github.com/nodelvm/nodelvm/test/scenario/neighbours"
	"github.com/nodelvm/nodelvm/test/scenario/nodeloss"
	"github.com/nodelvm/nodelvm/test/scenario/restart"
	"github.com/nodelvm/nodelvm/test/scenario/userns"
)

// raised starts the cluster that all scenarios share: the start takes a minute.
var raised = sync.OnceValues(func() (*scenario.Environment, error) {
	l, down, err := lab.OpenPrivate("cluster")
	if err != nil {
		return nil, err
	}
	lower = down
	return scenario.Raise(context.Background(), l, os.Stdout)
})

var lower = func() error { return nil }

// TestMain stops the cluster at the end. With KEEP=1 the cluster stays up for the next run, in which
// -run 'TestVolumeLifecycle/words_of_a_title' repeats one scenario.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := lower(); err != nil {
		fmt.Fprintln(os.Stderr, "lowering the lab:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// The tests are in the order in which one run executes them: each must work in the cluster that the previous one leaves.

// TestDemo runs the scenarios of `make demo` except the last, and scenarios that the demo omits. It needs a fresh cluster.
func TestDemo(t *testing.T) { play(t, demo.Whole()) }

// TestDocs runs the commands of the tutorial and of two how-to guides as written. It needs the cluster that TestDemo leaves.
func TestDocs(t *testing.T) { play(t, demo.Docs(docrun.Short())) }

// TestHelm installs the chart on nodes with blank disks, upgrades and uninstalls it. It needs volume groups without volumes.
func TestHelm(t *testing.T) { play(t, install.Helm()) }

// TestVolumeLifecycle expands, snapshots and copies volumes. It leaves thin pools, as do all tests after it.
func TestVolumeLifecycle(t *testing.T) { play(t, lifecycle.Scenarios()) }

// TestTenantAttacks lets a tenant attack other tenants and the node from a raw block volume.
func TestTenantAttacks(t *testing.T) { play(t, attack.Scenarios()) }

// TestTenantAttacksSample is the part of TestTenantAttacks that make test runs.
func TestTenantAttacksSample(t *testing.T) { play(t, attack.Sample()) }

// TestNodeLoss loses a node with its volumes, and brings it back with them.
func TestNodeLoss(t *testing.T) { play(t, nodeloss.Scenarios()) }

// TestOperator acts as the operator of a replicated database, whose claims are deleted and whose nodes are drained and lost, NODELVM_TEST_NODE_LOSSES
// times.
func TestOperator(t *testing.T) {
	play(t, nodeloss.Operated(number(t, "NODELVM_TEST_NODE_LOSSES", 3)))
}

// TestPlacement checks that the published capacity is current, and cuts the power of a node 3 times.
func TestPlacement(t *testing.T) {
	play(t, append(capacity.Published(), restart.PowerCuts(3, seed(t))...))
}

// TestNodeReboot shuts down a node with volumes of every layout, and boots it.
func TestNodeReboot(t *testing.T) { play(t, restart.NodeReboot()) }

// TestPlantedFaults plants eight faults; a command of the kubectl plugin explains each within a minute.
func TestPlantedFaults(t *testing.T) { play(t, faults.Scenarios()) }

// TestVolumeHealth proves CSI's health calls with a kubelet that makes them. It needs its own cluster, with an alpha feature gate.
func TestVolumeHealth(t *testing.T) {
	t.Setenv(lab.EnvFeatureGates, faults.HealthGate)
	play(t, faults.Health())
}

// TestEncryption runs databases on encrypted volumes, with copies, with new, lost and wrong keys, and with a reboot.
func TestEncryption(t *testing.T) { play(t, encryption.Scenarios()) }

// TestIOLimits limits the I/O of a volume, and restarts driver, pod and node.
func TestIOLimits(t *testing.T) { play(t, iolimits.Scenarios()) }

// TestUserNamespaces lets pods with hostUsers: false share volumes with an ordinary one. It compiles runc.
func TestUserNamespaces(t *testing.T) { play(t, userns.Scenarios()) }

// TestMoves moves a database's volumes to another node under load, and back.
func TestMoves(t *testing.T) { play(t, moves.Scenarios()) }

// TestMovePowerCuts cuts the power of the source or the target of NODELVM_TEST_MOVE_CUTS moves (50 by default).
func TestMovePowerCuts(t *testing.T) {
	play(t, moves.PowerCuts(number(t, "NODELVM_TEST_MOVE_CUTS", 50), seed(t)))
}

// TestDrainNode drains a node with ten volumes of all kinds, replaces it by an empty one, and moves the volumes back. It needs volume groups
// without volumes.
func TestDrainNode(t *testing.T) { play(t, moves.Drains()) }

// TestRestoreElsewhere restores a snapshot on three nodes, and kills the drivers meanwhile.
func TestRestoreElsewhere(t *testing.T) { play(t, moves.Restores()) }

// TestVelero backs up a database with Velero, and restores it on other nodes. It compiles Velero.
func TestVelero(t *testing.T) { play(t, backup.Scenarios()) }

// TestGroupSnapshots takes NODELVM_TEST_DATABASE_GROUPS group snapshots of a PostgreSQL under load, 3 by default, and restores each.
func TestGroupSnapshots(t *testing.T) {
	play(t, groups.Scenarios(number(t, "NODELVM_TEST_DATABASE_GROUPS", 3)))
}

// TestPairs starts 30 pods with two claims each on nodes with capacity for only some of the pairs, NODELVM_TEST_PAIRS_RUNS times.
func TestPairs(t *testing.T) {
	play(t, capacity.PodPairs(number(t, "NODELVM_TEST_PAIRS_RUNS", 1), seed(t)))
}

// TestDocsLong runs the commands of the other how-to guides. It leaves the cluster without the driver.
func TestDocsLong(t *testing.T) { play(t, demo.Docs(docrun.Long())) }

// failed names the failed tests.
var failed []string

func play(t *testing.T, scenarios []scenario.Scenario) {
	env, err := raised()
	must(t, err)
	playIn(t, env, scenarios)
}

func playIn(t *testing.T, env *scenario.Environment, scenarios []scenario.Scenario) {
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
			if errors.As(err, &failure) { // lists of failed tests then name the step
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

// seed returns NODELVM_TEST_SEED, or a random number, which the scenario prints.
func seed(t *testing.T) uint64 {
	if os.Getenv("NODELVM_TEST_SEED") == "" {
		return rand.Uint64N(1 << 32)
	}
	return uint64(number(t, "NODELVM_TEST_SEED", 0))
}

// number returns the value of an environment variable, or otherwise if it is not set. It must be positive: a test with zero
// repetitions checks nothing.
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

// TestDataPath prints the performance of fio in a pod on each kind of volume, relative to a bare logical volume. It needs an idle
// machine.
func TestDataPath(t *testing.T) { play(t, measure.DataPath()) }

// TestMoveRate prints the rate at which a move copies a volume, relative to a raw copy through TLS. It needs an idle machine.
func TestMoveRate(t *testing.T) { play(t, measure.MoveRate()) }

// TestInstanceStore replaces a node and its disks by a node with another name and blank disks. It needs volume groups without
// volumes.
func TestInstanceStore(t *testing.T) { play(t, install.InstanceStore()) }

// TestUnusualNodes runs a volume's lifecycle on a node without lvm2 and udev rules, and on one with a read-only /usr and /etc.
func TestUnusualNodes(t *testing.T) { play(t, install.UnusualNodes()) }

// TestNeighbours runs another CSI driver on a node, and claims whose sources are not nodelvm's.
func TestNeighbours(t *testing.T) { play(t, neighbours.Scenarios()) }

// TestBurst starts 60 pods at once: without volumes, with volumes, and on nodes with capacity for no more.
func TestBurst(t *testing.T) { play(t, capacity.Burst()) }

// TestClusterPowerCuts cuts the power of a cluster's node NODELVM_TEST_CLUSTER_CUTS times (50 by default), under a database's load
// and while volumes are created and deleted. TestPlacement does the same 3 times.
func TestClusterPowerCuts(t *testing.T) {
	play(t, restart.PowerCuts(number(t, "NODELVM_TEST_CLUSTER_CUTS", 50), seed(t)))
}

// TestScale measures the requests and the memory of an idle cluster, without and with the objects of 1,000 nodes and 20,000 volumes
// (NODELVM_TEST_SCALE_NODES, NODELVM_TEST_SCALE_VOLUMES, NODELVM_TEST_SCALE_MINUTES). It needs an otherwise idle machine.
func TestScale(t *testing.T) {
	play(t, measure.Scaling(measure.Scale{
		Nodes:   number(t, "NODELVM_TEST_SCALE_NODES", 1000),
		Volumes: number(t, "NODELVM_TEST_SCALE_VOLUMES", 20000),
		Idle:    time.Duration(number(t, "NODELVM_TEST_SCALE_MINUTES", 5)) * time.Minute,
		Own:     10,
	}))
}

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
