package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

const restoredPod = "restored-0"

func (l *life) snapshot() Scenario {
	return Scenario{Title: "A snapshot is taken under load, and a restore and a clone run beside the database", Steps: []Step{
		{Says: "a snapshot is taken under load; the database keeps running", Prove: l.snapshotUnderLoad},
		{Says: "a restore and a clone, claimed before any pod uses them, are created on the source's node, and events say why", Prove: earlyCopies},
		{Says: "a second StatefulSet uses the restore: on that node, and not on the one that it prefers", Prove: restoredRuns},
		{Says: "every row that was acknowledged before the snapshot is in the restored database, and none from after", Prove: l.rowsAreThere},
		{Says: "pgbench was writing when it was taken: the copy ends amid its transactions, and had to recover", Prove: l.amidTransactions},
		{Says: "both databases are consistent: pg_amcheck, and pgbench's sums", Prove: bothConsistent},
	}}
}

func (l *life) snapshotUnderLoad(ctx context.Context, env *Environment) error {
	// What the copy will have to recover is the load, and not also what pgbench began with.
	if _, err := env.QueryIn(ctx, growingPod, "checkpoint"); err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, growingPod)
	if err != nil {
		return err
	}
	writer, err := env.StartWriter(ctx, growingPod, 0)
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

func (l *life) snapshotAmidRows(ctx context.Context, env *Environment, load *cluster.Pgbench, w *cluster.Writer) error {
	if err := w.Reaches(ctx, 20); err != nil {
		return err
	}
	l.acked = w.Acked.Load()
	if err := apply("life-snapshot.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.snapshotReady(ctx, "under-load"); err != nil {
		return err
	}
	l.begun = w.Acked.Load() + 1
	transactions, err := env.Committed(ctx, growingPod)
	if err != nil {
		return err
	}
	return errors.Join(w.Reaches(ctx, l.begun+10), load.WaitCommitAfter(ctx, transactions))
}

// snapshotReady waits until a VolumeSnapshot can be restored.
func (env *Environment) snapshotReady(ctx context.Context, name string) error {
	return cluster.Eventually(ctx, func() error {
		status, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, name, "-o", "jsonpath={.status}")
		if err != nil {
			return err
		}
		ready, err := env.Kubectl(ctx, "", "get", "volumesnapshot", "-n", cluster.Namespace, name, "-o", "jsonpath={.status.readyToUse}")
		if err == nil && ready != "true" {
			err = fmt.Errorf("snapshot %s is not ready: %s%s", name, status, env.LastEvents(ctx, name))
		}
		return err
	})
}

func earlyCopies(ctx context.Context, env *Environment) error {
	if err := apply("life-early.yaml")(ctx, env); err != nil {
		return err
	}
	for _, claim := range []string{"data-restored-0", "clone-early"} {
		if err := env.besideSource(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

func restoredRuns(ctx context.Context, env *Environment) error {
	if err := apply("life-restored.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.runsOn(ctx, restoredPod, sourceNode); err != nil {
		return err
	}
	// The restore is larger than the snapshot, and its file system with it.
	size, err := env.fileSystemSize(ctx, restoredPod, growingPath)
	if err != nil {
		return err
	}
	if size < 1150<<20 {
		return fmt.Errorf("of 1280 MiB the file system has %d MiB", size>>20)
	}
	return env.sizesAgree(ctx, "data-restored-0", "1280Mi")
}

func (l *life) rowsAreThere(ctx context.Context, env *Environment) error {
	answer, err := env.QueryIn(ctx, restoredPod, "select count(*) || ' ' || coalesce(max(n), 0) from acked")
	if err != nil {
		return err
	}
	var count, last int64
	if _, err := fmt.Sscan(answer, &count, &last); err != nil {
		return fmt.Errorf("the database answered %q: %w", answer, err)
	}
	env.Reporter.Note("rows 1 to %d are there", last)
	if count != last || last < l.acked || last > l.begun {
		return fmt.Errorf("%d rows, the last is %d; %d were acknowledged before the snapshot was asked for, at most %d begun when it was ready",
			count, last, l.acked, l.begun)
	}
	return nil
}

// amidTransactions: the load had begun to commit when the snapshot was taken, and went on. A server that was shut down, or
// had nothing to write, would have had nothing to recover.
func (l *life) amidTransactions(ctx context.Context, env *Environment) error {
	copied, err := env.Committed(ctx, restoredPod)
	if err != nil {
		return err
	}
	all, err := env.Committed(ctx, growingPod)
	if err != nil {
		return err
	}
	env.Reporter.Note("of the load's %d transactions the copy has %d", all-l.unloaded, copied-l.unloaded)
	if copied <= l.unloaded || all <= copied {
		return fmt.Errorf("there were %d transactions before the load began, %d in the copy, and %d in the end", l.unloaded, copied, all)
	}
	log, err := env.Kubectl(ctx, "", "logs", "-n", cluster.Namespace, restoredPod)
	if err != nil {
		return err
	}
	for _, words := range []string{"was not properly shut down; automatic recovery in progress", "redo done at"} {
		if !strings.Contains(log, words) {
			return fmt.Errorf("the restored server does not say %q, but\n%s", words, cluster.Tail(log, 2000))
		}
	}
	return nil
}

// Each of pgbench's transactions adds one number to an account, a teller and a branch, and writes it down.
const sumsAgree = `select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from pgbench_tellers) = h
 and (select sum(bbalance) from pgbench_branches) = h from (select sum(delta) as h from pgbench_history) as history`

func bothConsistent(ctx context.Context, env *Environment) error {
	for _, pod := range []string{growingPod, restoredPod} {
		if out, err := env.ExecInPod(ctx, pod, "pg_amcheck", "--install-missing", "--heapallindexed", "postgres"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		agree, err := env.QueryIn(ctx, pod, sumsAgree)
		if err != nil {
			return err
		}
		if agree != "t" {
			return fmt.Errorf("%s: pgbench's sums differ (%q)", pod, agree)
		}
	}
	return nil
}
