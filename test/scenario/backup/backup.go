package backup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/lab"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Nodes of the scenarios. Velero's server is on the first one: it must not be on the one that is lost.
const (
	serverNode  = scenario.FirstNode
	sourceNode  = "node-2"
	restoreNode = scenario.BigNode
)

// The pod of backup-database.yaml.
const (
	databasePod = "books"
	rawDevice   = "/dev/raw-volume"
)

// claims are those of the pod, in the order in which Velero takes their snapshots.
var claims = []string{"books-data", "books-log", "books-raw"}

const backupName = "books-1"

// Scenarios returns the life of a backup.
func Scenarios() []scenario.Scenario {
	s := &state{}
	return []scenario.Scenario{
		{Title: "Velero is installed as docs/howto/backup.md says", Steps: []scenario.Step{
			{Says: "an S3 server runs, and the nodes have Velero's images", Limit: time.Hour, Prove: s.startServer},
			{Says: "the commands of docs/howto/backup.md run as written: a database is backed up, deleted and restored", Limit: time.Hour, Prove: s.followPage},
			{Says: "Velero's server moves to " + serverNode, Prove: placeServer},
		}},
		{Title: "A PostgreSQL under load is backed up, and restored on another node", Steps: []scenario.Step{
			{Says: "a PostgreSQL runs on " + sourceNode + " with claims for data (ext4), log (xfs) and a raw block volume", Prove: s.startDatabase},
			{Says: "it is backed up under pgbench: the pool allocates at most what the database changes and what the replay of journals writes", Limit: 30 * time.Minute, Prove: s.backUp},
			{Says: "no snapshot and no read-only copy is left", Prove: nothingOfBackupIsLeft},
			{Says: "its namespace is deleted, and restored: " + serverNode + ", which has capacity for each volume but not for all, returns the claims, and all are on " + restoreNode, Limit: 30 * time.Minute, Prove: s.restoreElsewhere},
			{Says: "every row that was acknowledged before the backup is there, and the raw volume is the same", Prove: s.checkData},
		}},
		s.nodeLoss(),
		{Title: "The backup is deleted", Steps: []scenario.Step{
			{Says: "velero backup delete leaves no object, no snapshot and no volume of Velero", Prove: s.deleteBackup},
			{Says: "Velero is removed, and only thin pools are left", Prove: removeVelero},
		}},
	}
}

// state is what one step leaves for the next to know.
type state struct {
	velero lab.Velero
	server lab.S3
	acked  int64  // the last row that was acknowledged before the backup
	raw    string // checksum of the raw volume
}

func (s *state) startDatabase(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.Apply("life-classes.yaml")(ctx, env); err != nil {
		return err
	}
	err := env.Cordoned(ctx, []string{serverNode, restoreNode}, func() error {
		if err := scenario.Apply("backup-database.yaml")(ctx, env); err != nil {
			return err
		}
		return env.RunsOn(ctx, databasePod, sourceNode)
	})
	if err != nil {
		return err
	}
	if _, err := env.QueryIn(ctx, databasePod, "create table if not exists acked (n bigint primary key); truncate acked"); err != nil {
		return err
	}
	if _, err := env.ExecInPod(ctx, databasePod, "pgbench", "-i", "-q", "-s", "2", "postgres"); err != nil {
		return err
	}
	write := scenario.PatternCommand + " | dd of=" + rawDevice + " bs=64k seek=16 conv=fsync"
	if _, err := onRaw(ctx, env, "sh", "-c", write); err != nil {
		return err
	}
	s.raw, err = checksum(ctx, env)
	return err
}

// onRaw runs a command in the container that has the raw volume.
func onRaw(ctx context.Context, env *scenario.Environment, argv ...string) (string, error) {
	return env.Kubectl(ctx, "", append([]string{"exec", "-n", cluster.Namespace, databasePod, "-c", "raw", "--"}, argv...)...)
}

// checksum returns that of the raw volume.
func checksum(ctx context.Context, env *scenario.Environment) (string, error) {
	return onRaw(ctx, env, "sha256sum", rawDevice)
}

// firstRows is how many rows are acknowledged before the backup begins.
const firstRows = 50

func (s *state) backUp(ctx context.Context, env *scenario.Environment) error {
	load, err := env.StartPgbench(ctx, databasePod)
	if err != nil {
		return err
	}
	writer, err := env.StartWriter(ctx, databasePod, 0)
	if err != nil {
		return err
	}
	failed := func() error {
		if err := writer.Reaches(ctx, firstRows); err != nil {
			return err
		}
		s.acked = writer.Acked.Load()
		return s.backUpAndWatch(ctx, env)
	}()
	transactions, err := load.Stop(ctx)
	env.Reporter.Note("acknowledged before the backup: %d rows; until its end: %d rows and %d transactions of pgbench", s.acked, writer.Acked.Load(), transactions)
	return errors.Join(failed, err, writer.Stop())
}

// backUpAndWatch makes the backup, and watches the source's thin pool.
func (s *state) backUpAndWatch(ctx context.Context, env *scenario.Environment) error {
	w, err := newSpaceWatch(ctx, env)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := s.run(ctx, env, "backup", "create", backupName, "--include-namespaces", cluster.Namespace, "--snapshot-move-data"); err != nil {
		return err
	}
	err = s.completes(ctx, env, "backup", backupName, func() error { return w.observe(ctx, env) })
	if err != nil {
		return err
	}
	env.Reporter.Note("the backup took %.0f s", time.Since(began).Seconds())
	if err := s.noteTransfers(ctx, env, "datauploads", "velero.io/backup-name="+backupName); err != nil {
		return err
	}
	return w.check(env)
}

// nothingOfBackupIsLeft fails unless each snapshot and each copy that Velero made is gone.
func nothingOfBackupIsLeft(ctx context.Context, env *scenario.Environment) error {
	return cluster.Eventually(ctx, func() error {
		for _, kind := range []string{"volumesnapshots", "volumesnapshotcontents"} {
			left, err := env.Kubectl(ctx, "", "get", kind, "-A", "-o", "name")
			if err != nil || left != "" {
				return errors.Join(err, fmt.Errorf("these are still there: %s", left))
			}
		}
		left, err := env.Kubectl(ctx, "", "get", "pvc", "-n", veleroNamespace, "-o", "name")
		if err != nil || left != "" {
			return errors.Join(err, fmt.Errorf("namespace %s still has %s", veleroNamespace, left))
		}
		return env.CheckNoVolumes(ctx, func(row cluster.LogicalVolume) bool { return !isSnapshot(row.Tags) && !isReadOnlyCopy(row.Tags) })
	})
}
