package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/docrun"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const (
	database = "grouped" // the pod of group-database.yaml, and the label of its claims
	copied   = "copied"  // the pod from a group snapshot
)

// Scenarios returns that of group snapshots: count of them under load.
func Scenarios(count int) []scenario.Scenario {
	sc := scenario.Scenario{Title: "Group snapshots of a PostgreSQL with data and log on two volumes", Steps: []scenario.Step{
		{Says: "the driver runs with groupSnapshots.enabled", Prove: func(ctx context.Context, env *scenario.Environment) error {
			return env.ApplyChart(ctx, "groupSnapshots.enabled=true")
		}},
		{Says: "the commands of docs/howto/snapshots.md for group snapshots run as written", Prove: scenario.Follow(docrun.WithGroupSnapshots())},
		{Says: "the page's objects are deleted, and no volume is left", Prove: deletePage},
		{Says: "a PostgreSQL runs with data and log on two thin volumes", Prove: start},
	}}
	for i := range count {
		s := snapshot{name: fmt.Sprintf("group-%d", i+1)}
		sc.Steps = append(sc.Steps,
			scenario.Step{Says: fmt.Sprintf("group snapshot %d of %d is taken under pgbench", i+1, count), Prove: s.take},
			scenario.Step{Says: "one pod restores both volumes, and PostgreSQL recovers with every row that was acknowledged before", Prove: s.restore},
			scenario.Step{Says: "the group snapshot is deleted, and no snapshot is left", Prove: s.delete},
		)
	}
	sc.Steps = append(sc.Steps, scenario.Step{Says: "everything is deleted, and the driver is as shipped", Prove: end})
	return []scenario.Scenario{sc}
}

func deletePage(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "volumegroupsnapshotclass", "--all"); err != nil {
		return err
	}
	return scenario.DeleteDocsObjects(ctx, env)
}

func start(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-classes.yaml", "group-class.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "group-database.yaml", "NAME", database, "SOURCE-OF-DATA", "null", "SOURCE-OF-WAL", "null",
		"SELECTOR", "{kubernetes.io/hostname: "+scenario.FirstNode+"}"); err != nil {
		return err
	}
	return env.PrepareDatabase(ctx, database)
}

// snapshot is one group snapshot.
type snapshot struct {
	name     string
	acked    int64 // the writer's rows that were acknowledged before it was asked for
	begun    int64 // the rows that the writer had sent when it was ready
	unloaded int64 // pgbench's transactions before the load began
}

func (s *snapshot) take(ctx context.Context, env *scenario.Environment) error {
	// What the copy will have to recover is the load of this snapshot.
	if _, err := env.QueryIn(ctx, database, "checkpoint"); err != nil {
		return err
	}
	answer, err := env.QueryIn(ctx, database, "select coalesce(max(n), 0) from acked")
	if err != nil {
		return err
	}
	var last int64
	if _, err := fmt.Sscan(answer, &last); err != nil {
		return fmt.Errorf("the database answered %q: %w", answer, err)
	}
	load, err := env.StartPgbench(ctx, database)
	if err != nil {
		return err
	}
	writer, err := env.StartWriter(ctx, database, last)
	if err != nil {
		return err
	}
	s.unloaded = load.Before
	err = s.takeAmidRows(ctx, env, load, writer)
	transactions, loaded := load.Stop(ctx)
	if err := errors.Join(err, writer.Stop(), loaded); err != nil {
		return err
	}
	env.Reporter.Note("row %d was acknowledged before, at most %d begun until it was ready, %d acknowledged in the end; pgbench's transactions: %d",
		s.acked, s.begun, writer.Acked.Load(), transactions)
	return nil
}

func (s *snapshot) takeAmidRows(ctx context.Context, env *scenario.Environment, load *cluster.Pgbench, w *cluster.Writer) error {
	if err := w.Reaches(ctx, w.Acked.Load()+20); err != nil {
		return err
	}
	before, err := stalls(ctx, env)
	if err != nil {
		return err
	}
	s.acked = w.Acked.Load()
	begin := time.Now()
	if err := env.ApplyWith(ctx, "group-snapshot.yaml", "NAME", s.name); err != nil {
		return err
	}
	if err := s.waitReady(ctx, env); err != nil {
		return err
	}
	took := time.Since(begin)
	s.begun = w.Acked.Load() + 1
	after, err := stalls(ctx, env)
	if err != nil {
		return err
	}
	if after.count == before.count {
		return fmt.Errorf("the driver on %s measured no stall", scenario.FirstNode)
	}
	env.Reporter.Note("ready after %.1f s; the volumes were suspended for %.0f ms (%.0f times)", took.Seconds(), 1000*(after.seconds-before.seconds), after.count-before.count)
	transactions, err := env.Committed(ctx, database)
	if err != nil {
		return err
	}
	return errors.Join(w.Reaches(ctx, s.begun+10), load.WaitCommitAfter(ctx, transactions))
}

// stalled is how often and for how long volumes were suspended since the start of the driver on the first node.
type stalled struct{ count, seconds float64 }

func stalls(ctx context.Context, env *scenario.Environment) (s stalled, err error) {
	pod, err := env.DriverPodOn(ctx, scenario.FirstNode)
	if err != nil {
		return s, err
	}
	page, err := env.DriverPage(ctx, pod.Name, "/metrics")
	if err != nil {
		return s, err
	}
	return s, scenario.EachSample(page, func(name, _ string, value float64) {
		switch name {
		case "nodelvm_group_snapshot_stall_seconds_count":
			s.count = value
		case "nodelvm_group_snapshot_stall_seconds_sum":
			s.seconds = value
		}
	})
}

func (s *snapshot) waitReady(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		status, err := env.Kubectl(ctx, "", "get", "volumegroupsnapshot", "-n", cluster.Namespace, s.name, "-o", "jsonpath={.status.readyToUse} {.status}")
		if err == nil && !strings.HasPrefix(status, "true ") {
			err = fmt.Errorf("group snapshot %s is not ready: %s%s", s.name, status, env.LastEvents(ctx, s.name))
		}
		return err
	})
}

// members returns the VolumeSnapshots of the group snapshot by claim, when there are two.
func (s *snapshot) members(ctx context.Context, env *scenario.Environment) (byClaim map[string]string, err error) {
	err = cluster.Eventually(ctx, func() error {
		text, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, "-o",
			`jsonpath={range .items[*]}{.spec.source.persistentVolumeClaimName} {.metadata.name} {.metadata.ownerReferences[0].name}{"\n"}{end}`)
		if err != nil {
			return err
		}
		byClaim = map[string]string{}
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[2] == s.name {
				byClaim[fields[0]] = fields[1]
			}
		}
		if len(byClaim) != 2 {
			return fmt.Errorf("%s has not two VolumeSnapshots: %q", s.name, text)
		}
		return nil
	})
	return byClaim, err
}

func (s *snapshot) restore(ctx context.Context, env *scenario.Environment) error {
	members, err := s.members(ctx, env)
	if err != nil {
		return err
	}
	from := func(claim string) string {
		return "{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: " + members[claim] + "}"
	}
	if err := env.ApplyWith(ctx, "group-database.yaml", "NAME", copied, "SOURCE-OF-DATA", from(database+"-data"), "SOURCE-OF-WAL", from(database+"-wal"), "SELECTOR", "{}"); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, copied, scenario.FirstNode); err != nil {
		return err
	}
	if _, err := env.CheckRows(ctx, copied, s.acked, s.begun); err != nil {
		return err
	}
	if err := env.CheckAmidTransactions(ctx, database, copied, s.unloaded); err != nil {
		return err
	}
	if err := env.CheckConsistent(ctx, copied); err != nil {
		return err
	}
	return env.Delete(ctx, "pod/"+copied, "pvc/"+copied+"-data", "pvc/"+copied+"-wal")
}

// delete deletes the group snapshot, and waits until its members and their contents are gone, and the nodes have only the database's volumes.
func (s *snapshot) delete(ctx context.Context, env *scenario.Environment) error {
	if err := env.Delete(ctx, "volumegroupsnapshot/"+s.name); err != nil {
		return err
	}
	if err := noContents(ctx, env); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			rows, err := env.LogicalVolumes(ctx, node)
			if err != nil {
				return err
			}
			want := 0
			if node == scenario.FirstNode {
				want = 2
			}
			if rows = slices.DeleteFunc(rows, cluster.LogicalVolume.IsPool); len(rows) != want {
				return fmt.Errorf("%s has %d logical volumes, want %d: %v", node, len(rows), want, rows)
			}
		}
		return nil
	})
}

// noContents waits until there is no snapshot, and no content of one or of a group snapshot.
func noContents(ctx context.Context, env *scenario.Environment) error {
	return env.WaitNone(ctx, "volumesnapshot,volumesnapshotcontent,volumegroupsnapshot,volumegroupsnapshotcontent", "-A")
}

func end(ctx context.Context, env *scenario.Environment) error {
	if err := env.CheckConsistent(ctx, database); err != nil {
		return err
	}
	if err := scenario.DeletePodsAndVolumes(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "volumegroupsnapshotclass", "thin"); err != nil {
		return err
	}
	return scenario.RestoreDriver(ctx, env)
}
