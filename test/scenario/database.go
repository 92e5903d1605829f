package scenario

import (
	"context"
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// The PostgreSQL server of life-database.yaml.
const (
	DatabasePod   = "db-0"
	DatabaseClaim = "data-db-0"
	DatabasePath  = "/var/lib/postgresql/data" // where each PostgreSQL of the manifests has its volume
)

// SmallDatabase starts the PostgreSQL server on a thin volume of 512 MiB, with pgbench's tables and one for a cluster.Writer.
func SmallDatabase(ctx context.Context, env *Environment) error {
	if err := Apply("life-classes.yaml", "life-database.yaml")(ctx, env); err != nil {
		return err
	}
	if err := env.PrepareDatabase(ctx, DatabasePod); err != nil {
		return err
	}
	return env.CheckSizes(ctx, DatabaseClaim, "512Mi")
}

// PrepareDatabase waits for a pod with PostgreSQL, and creates pgbench's tables and one for a cluster.Writer.
func (env *Environment) PrepareDatabase(ctx context.Context, pod string) error {
	if _, err := env.WaitPodReady(ctx, pod); err != nil {
		return err
	}
	if _, err := env.QueryIn(ctx, pod, "create table if not exists acked (n bigint primary key)"); err != nil {
		return err
	}
	_, err := env.ExecInPod(ctx, pod, "pgbench", "-i", "-q", "-s", "2", "postgres")
	return err
}

// FingerprintQuery sums up everything that pgbench has written.
const FingerprintQuery = `select (select count(*) from pgbench_accounts), (select sum(abalance) from pgbench_accounts),
 (select count(*) from pgbench_history), (select sum(delta) from pgbench_history)`

// SumsAgreeQuery is true in a consistent database: each of pgbench's transactions adds one number to an account, a teller and a branch, and writes it down.
const SumsAgreeQuery = `select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from pgbench_tellers) = h
 and (select sum(bbalance) from pgbench_branches) = h from (select sum(delta) as h from pgbench_history) as history`

// CheckRows fails unless the database of a pod has each of a cluster.Writer's rows that was acknowledged, and none that was not begun. Of a copy from a
// snapshot: acknowledged before the snapshot was asked for, and begun when it was ready. It returns the last row.
func (env *Environment) CheckRows(ctx context.Context, pod string, acked, begun int64) (last int64, err error) {
	answer, err := env.QueryIn(ctx, pod, "select count(*) || ' ' || coalesce(max(n), 0) from acked")
	if err != nil {
		return 0, err
	}
	var count int64
	if _, err := fmt.Sscan(answer, &count, &last); err != nil {
		return 0, fmt.Errorf("the database answered %q: %w", answer, err)
	}
	env.Reporter.Note("rows 1 to %d are there, %d were acknowledged", last, acked)
	if count != last || last < acked || last > begun {
		return last, fmt.Errorf("%d rows, the last is %d; %d were acknowledged, and at most %d begun", count, last, acked, begun)
	}
	return last, nil
}

// CheckAmidTransactions fails unless the database of a copy recovered to a moment amid the load of its source, which began after transaction unloaded, and
// went on after the snapshot. A server that was shut down, or had nothing to write, would have had nothing to recover.
func (env *Environment) CheckAmidTransactions(ctx context.Context, source, copy string, unloaded int64) error {
	copied, err := env.Committed(ctx, copy)
	if err != nil {
		return err
	}
	all, err := env.Committed(ctx, source)
	if err != nil {
		return err
	}
	env.Reporter.Note("of the load's %d transactions the copy has %d", all-unloaded, copied-unloaded)
	if copied <= unloaded || all <= copied {
		return fmt.Errorf("there were %d transactions before the load began, %d in the copy, and %d in the end", unloaded, copied, all)
	}
	log, err := env.Kubectl(ctx, "", "logs", "-n", cluster.Namespace, copy)
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

// CheckConsistent fails unless pg_amcheck finds no fault in the database of a pod, and pgbench's sums agree.
func (env *Environment) CheckConsistent(ctx context.Context, pod string) error {
	if out, err := env.ExecInPod(ctx, pod, "pg_amcheck", "--install-missing", "--heapallindexed", "postgres"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	agree, err := env.QueryIn(ctx, pod, SumsAgreeQuery)
	if err != nil {
		return err
	}
	if agree != "t" {
		return fmt.Errorf("%s: pgbench's sums differ (%q)", pod, agree)
	}
	return nil
}
