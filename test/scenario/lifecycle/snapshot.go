package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

const restoredPod = "restored-0"

func (l *life) snapshot() scenario.Scenario {
	return scenario.Scenario{Title: "A snapshot is taken under load, and a restore and a clone run beside the database", Steps: []scenario.Step{
		{Says: "a snapshot is taken under load; the database keeps running", Prove: l.snapshotUnderLoad},
		{Says: "a restore and a clone, claimed before any pod uses them, are created on the source's node, and events say why", Prove: earlyCopies},
		{Says: "a second StatefulSet uses the restore: on that node, and not on the one that it prefers", Prove: restoredRuns},
		{Says: "every row that was acknowledged before the snapshot is in the restored database, and none from after", Prove: l.rowsAreThere},
		{Says: "pgbench was writing when it was taken: the copy ends amid its transactions, and had to recover", Prove: l.amidTransactions},
		{Says: "both databases are consistent: pg_amcheck, and pgbench's sums", Prove: bothConsistent},
		{Says: "under load, two pods read a read-only copy of the snapshot, which provisions what its journal may write", Prove: readersUnderLoad},
	}}
}

func (l *life) snapshotUnderLoad(ctx context.Context, env *scenario.Environment) error {
	// What the copy will have to recover is the load, and not also what pgbench began with.
	if _, err := env.QueryIn(ctx, scenario.DatabasePod, "checkpoint"); err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	writer, err := env.StartWriter(ctx, scenario.DatabasePod, 0)
	if err != nil {
		return err
	}
	l.unloaded = load.Before
	err = l.snapshotAmidRows(ctx, env, load, writer)
	transactions, loaded := load.Stop(ctx)
	if err := errors.Join(err, writer.Stop(), loaded); err != nil {
		return err
	}
	env.Reporter.Note("%d rows were acknowledged before, at most %d begun until it was ready, %d acknowledged in the end; pgbench's transactions: %d",
		l.acked, l.begun, writer.Acked.Load(), transactions)
	return nil
}

func (l *life) snapshotAmidRows(ctx context.Context, env *scenario.Environment, load *cluster.Pgbench, w *cluster.Writer) error {
	if err := w.Reaches(ctx, 20); err != nil {
		return err
	}
	l.acked = w.Acked.Load()
	if err := scenario.Apply("life-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.WaitSnapshotReady(ctx, "under-load"); err != nil {
		return err
	}
	l.begun = w.Acked.Load() + 1
	transactions, err := env.Committed(ctx, scenario.DatabasePod)
	if err != nil {
		return err
	}
	return errors.Join(w.Reaches(ctx, l.begun+10), load.WaitCommitAfter(ctx, transactions))
}

func earlyCopies(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-early.yaml")(ctx, env); err != nil {
		return err
	}
	for _, claim := range []string{"data-restored-0", "clone-early"} {
		if err := besideSource(ctx, env, claim); err != nil {
			return err
		}
	}
	return nil
}

func restoredRuns(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-restored.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.RunsOn(ctx, restoredPod, sourceNode); err != nil {
		return err
	}
	// The restore is larger than the snapshot, and its file system with it.
	size, err := env.FileSystemSize(ctx, restoredPod, scenario.DatabasePath)
	if err != nil {
		return err
	}
	if size < 1150<<20 {
		return fmt.Errorf("of 1280 MiB the file system has %d MiB", size>>20)
	}
	return env.CheckSizes(ctx, "data-restored-0", "1280Mi")
}

func (l *life) rowsAreThere(ctx context.Context, env *scenario.Environment) error {
	_, err := env.CheckRows(ctx, restoredPod, l.acked, l.begun)
	return err
}

// amidTransactions: the load had begun to commit when the snapshot was taken, and went on. A server that was shut down, or
// had nothing to write, would have had nothing to recover.
func (l *life) amidTransactions(ctx context.Context, env *scenario.Environment) error {
	return env.CheckAmidTransactions(ctx, scenario.DatabasePod, restoredPod, l.unloaded)
}

func bothConsistent(ctx context.Context, env *scenario.Environment) error {
	for _, pod := range []string{scenario.DatabasePod, restoredPod} {
		if err := env.CheckConsistent(ctx, pod); err != nil {
			return err
		}
	}
	return nil
}
