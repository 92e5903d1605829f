package scenario

import "context"

// The PostgreSQL server of life-database.yaml.
const (
	DatabasePod   = "db-0"
	DatabaseClaim = "data-db-0"
	DatabasePath  = "/var/lib/postgresql/data" // where each PostgreSQL of the manifests has its volume
)

// SmallDatabase starts the PostgreSQL server on a thin volume of 512 MiB, with pgbench's tables and one for a cluster.Writer.
func SmallDatabase(ctx context.Context, env *Environment) error {
	for _, manifest := range []string{"life-classes.yaml", "life-database.yaml"} {
		if err := Apply(manifest)(ctx, env); err != nil {
			return err
		}
	}
	if _, err := env.WaitPodReady(ctx, DatabasePod); err != nil {
		return err
	}
	if _, err := env.QueryIn(ctx, DatabasePod, "create table if not exists acked (n bigint primary key)"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, DatabasePod, "pgbench", "-i", "-q", "-s", "2", "postgres"); err != nil {
		return err
	}
	return env.CheckSizes(ctx, DatabaseClaim, "512Mi")
}

// FingerprintQuery sums up everything that pgbench has written.
const FingerprintQuery = `select (select count(*) from pgbench_accounts), (select sum(abalance) from pgbench_accounts),
 (select count(*) from pgbench_history), (select sum(delta) from pgbench_history)`

// SumsAgreeQuery is true in a consistent database: each of pgbench's transactions adds one number to an account, a teller and a branch, and writes it down.
const SumsAgreeQuery = `select (select sum(abalance) from pgbench_accounts) = h and (select sum(tbalance) from pgbench_tellers) = h
 and (select sum(bbalance) from pgbench_branches) = h from (select sum(delta) as h from pgbench_history) as history`
