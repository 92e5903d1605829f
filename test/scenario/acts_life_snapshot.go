package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const restoredPod = "restored-0"

func (l *life) snapshot() Act {
	return Act{Title: "It is snapshotted while it works, and lives on twice", Steps: []Step{
		{Says: "a snapshot is taken under load; the database goes on", Prove: l.snapshotUnderLoad},
		{Says: "a restore and a clone, claimed without any pod, are made on the source's node, and events say why", Prove: earlyCopies},
		{Says: "a second StatefulSet runs on the restore: there, and not where it would have liked", Prove: restoredRuns},
		{Says: "every row that was acknowledged before the snapshot is in the restored database, and none from after", Prove: l.rowsAreThere},
		{Says: "pgbench was writing when it was taken: the copy ends amid its transactions, and had to recover", Prove: l.amidTransactions},
		{Says: "both databases are consistent: pg_amcheck, and pgbench's sums", Prove: bothConsistent},
	}}
}

func (l *life) snapshotUnderLoad(ctx context.Context, s *Stage) error {
	// What the copy will have to recover is the load, and not also what pgbench began with.
	if _, err := s.queryIn(ctx, growingPod, "checkpoint"); err != nil {
		return err
	}
	load, err := s.startLoad(ctx, growingPod)
	if err != nil {
		return err
	}
	writer, err := s.startWriter(ctx, growingPod, 0)
	if err != nil {
		return err
	}
	l.unloaded = load.before
	err = l.snapshotAmidRows(ctx, s, load, writer)
	transactions, loaded := load.stop(ctx)
	if err := errors.Join(err, writer.stop(), loaded); err != nil {
		return err
	}
	s.Narrator.Note("%d rows were acknowledged before, at most %d begun until it was ready, %d acknowledged in the end; pgbench's transactions: %d",
		l.acked, l.begun, writer.acked.Load(), transactions)
	return nil
}

func (l *life) snapshotAmidRows(ctx context.Context, s *Stage, load *load, w *writer) error {
	if err := w.reaches(ctx, 20); err != nil {
		return err
	}
	l.acked = w.acked.Load()
	if err := apply("life-snapshot.yaml")(ctx, s); err != nil {
		return err
	}
	if err := s.snapshotReady(ctx, "under-load"); err != nil {
		return err
	}
	l.begun = w.acked.Load() + 1
	transactions, err := s.committed(ctx, growingPod)
	if err != nil {
		return err
	}
	return errors.Join(w.reaches(ctx, l.begun+10), load.passes(ctx, transactions))
}

// snapshotReady waits until a VolumeSnapshot can be restored.
func (s *Stage) snapshotReady(ctx context.Context, name string) error {
	return eventually(ctx, func() error {
		status, err := s.kubectl(ctx, "", "get", "volumesnapshot", "-n", Namespace, name, "-o", "jsonpath={.status}")
		if err != nil {
			return err
		}
		ready, err := s.kubectl(ctx, "", "get", "volumesnapshot", "-n", Namespace, name, "-o", "jsonpath={.status.readyToUse}")
		if err == nil && ready != "true" {
			err = fmt.Errorf("snapshot %s is not ready: %s%s", name, status, s.lastEvents(ctx, name))
		}
		return err
	})
}

func earlyCopies(ctx context.Context, s *Stage) error {
	if err := apply("life-early.yaml")(ctx, s); err != nil {
		return err
	}
	for _, claim := range []string{"data-restored-0", "clone-early"} {
		if err := s.besideSource(ctx, claim); err != nil {
			return err
		}
	}
	return nil
}

func restoredRuns(ctx context.Context, s *Stage) error {
	if err := apply("life-restored.yaml")(ctx, s); err != nil {
		return err
	}
	if err := s.runsOn(ctx, restoredPod, sourceNode); err != nil {
		return err
	}
	// The restore is larger than the snapshot, and its file system with it.
	size, err := s.fileSystemSize(ctx, restoredPod, growingPath)
	if err != nil {
		return err
	}
	if size < 1150<<20 {
		return fmt.Errorf("of 1280 MiB the file system has %d MiB", size>>20)
	}
	return s.sizesAgree(ctx, "data-restored-0", "1280Mi")
}

func (l *life) rowsAreThere(ctx context.Context, s *Stage) error {
	answer, err := s.queryIn(ctx, restoredPod, "select count(*) || ' ' || coalesce(max(n), 0) from acked")
	if err != nil {
		return err
	}
	var count, last int64
	if _, err := fmt.Sscan(answer, &count, &last); err != nil {
		return fmt.Errorf("the database answered %q: %w", answer, err)
	}
	s.Narrator.Note("rows 1 to %d are there", last)
	if count != last || last < l.acked || last > l.begun {
		return fmt.Errorf("%d rows, the last is %d; %d were acknowledged before the snapshot was asked for, at most %d begun when it was ready",
			count, last, l.acked, l.begun)
	}
	return nil
}

// amidTransactions: the load had begun to commit when the snapshot was taken, and went on. A server that was shut down, or
// had nothing to write, would have had nothing to recover.
func (l *life) amidTransactions(ctx context.Context, s *Stage) error {
	copied, err := s.committed(ctx, restoredPod)
	if err != nil {
		return err
	}
	all, err := s.committed(ctx, growingPod)
	if err != nil {
		return err
	}
	s.Narrator.Note("of the load's %d transactions the copy has %d", all-l.unloaded, copied-l.unloaded)
	if copied <= l.unloaded || all <= copied {
		return fmt.Errorf("there were %d transactions before the load began, %d in the copy, and %d in the end", l.unloaded, copied, all)
	}
	log, err := s.kubectl(ctx, "", "logs", "-n", Namespace, restoredPod)
	if err != nil {
		return err
	}
	for _, words := range []string{"was not properly shut down; automatic recovery in progress", "redo done at"} {
		if !strings.Contains(log, words) {
			return fmt.Errorf("the restored server does not say %q, but\n%s", words, tail(log, 2000))
		}
	}
	return nil
}

// Each of pgbench's transactions adds one number to an account, a teller and a branch, and writes it down.
const sumsAgree = `select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from pgbench_tellers) = h
 and (select sum(bbalance) from pgbench_branches) = h from (select sum(delta) as h from pgbench_history) as history`

func bothConsistent(ctx context.Context, s *Stage) error {
	for _, pod := range []string{growingPod, restoredPod} {
		if out, err := s.inPod(ctx, pod, "pg_amcheck", "--install-missing", "--heapallindexed", "postgres"); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		agree, err := s.queryIn(ctx, pod, sumsAgree)
		if err != nil {
			return err
		}
		if agree != "t" {
			return fmt.Errorf("%s: pgbench's sums differ (%q)", pod, agree)
		}
	}
	return nil
}
