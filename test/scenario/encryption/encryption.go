package encryption

import (
	"context"
	"errors"
	"fmt"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// Scenarios returns the life of encrypted volumes: databases, expansion, copies, rotation, lost and wrong keys, a reboot, deletion. During all of it
// the node is searched for the keys. It leaves thin pools.
func Scenarios() []scenario.Scenario {
	c := newCipherStory()
	return []scenario.Scenario{
		{Title: "Databases on encrypted volumes, each with a Secret", Steps: []scenario.Step{
			{Says: "an admin creates two encrypted classes, and names them in the admission policy", Prove: c.encryptedClasses},
			{Says: "the node is watched for the keys; keys that are planted in a process, a file and an object are found", Prove: c.watchBegins},
			{Says: "PostgreSQL runs on an encrypted thin and an encrypted striped volume", Prove: c.databasesRun},
		}},
		{Title: "Encrypted volumes change while they work", Steps: []scenario.Step{
			{Says: "under pgbench both grow to 640 MiB: no restart, no failed transaction", Prove: c.growUnderLoad},
			{Says: "a restore of a snapshot under load and a clone run beside their origin, with a consistent database", Prove: c.copiesRun},
			{Says: "under pgbench the thin volume's key is replaced: the new one opens it, and the old one does not", Prove: c.rotateUnderLoad},
			{Says: "under pgbench an expansion with another key fails, and an event says so; with the right key it continues", Prove: c.expandWithAnotherKey},
		}},
		{Title: "Secrets are lost and restored", Steps: []scenario.Step{
			{Says: "without its Secret a database does not start, and an event names the Secret; with it, it has every row", Prove: c.secretIsLost},
			{Says: "with another key it does not start, and an event says so; with the right one it has every row", Prove: c.keyIsWrong},
			{Says: "the node is shut down and boots: all databases have every row", Prove: c.nodeReboots},
		}},
		{Title: "Encrypted volumes are deleted", Steps: []scenario.Step{
			{Says: "what the databases wrote is on their mappings, and nowhere on the node's disks", Prove: c.plaintextIsNotOnDisks},
			{Says: "no key was found in a process, file, log, page, tag or object", Prove: c.noKeyWasSeen},
			{Says: "everything is deleted: only pools are left", Prove: c.everythingEnds},
		}},
	}
}

// cipherStory is what one step leaves for the next to know.
type cipherStory struct {
	pattern string            // in the databases
	keys    map[string]string // by what they are for
	rows    map[string]string // pod -> fingerprint of its database
}

const (
	cipherNode  = "node-1"
	thinDB      = "ledger"
	stripedDB   = "vault"
	restoredDB  = "restored"
	clonedDB    = "cloned"
	cipherGrown = "640Mi"
)

func newCipherStory() *cipherStory {
	c := &cipherStory{pattern: "plaintext-" + randomHex(12) + "-", keys: map[string]string{}, rows: map[string]string{}}
	for _, use := range []string{thinDB, stripedDB, "rotated", "wrong", "planted"} {
		c.keys[use] = randomHex(32)
	}
	return c
}

func podOfDB(db string) string   { return db + "-0" }
func claimOfDB(db string) string { return "data-" + db + "-0" }

// encryptedClasses does what docs/howto/encryption.md says for the plain manifest, and creates a key with the page's command.
func (c *cipherStory) encryptedClasses(ctx context.Context, env *scenario.Environment) (err error) {
	if c.keys[stripedDB], err = documentedKey(ctx); err != nil {
		return err
	}
	if err := env.DropEmptyPools(ctx, cipherNode); err != nil {
		return err
	}
	if err := scenario.Apply("encryption.yaml")(ctx, env); err != nil {
		return err
	}
	return env.SetPolicyVariable(ctx, "encryptedClasses", "['encrypted-thin', 'encrypted-striped']")
}

// database starts PostgreSQL on an encrypted volume; source is in YAML's words, "null" for none.
func (c *cipherStory) database(ctx context.Context, env *scenario.Environment, db, class, size, source, key string) error {
	if err := env.ReplaceKeySecret(ctx, claimOfDB(db), map[string]string{"key": key}); err != nil {
		return err
	}
	if err := env.ApplyWith(ctx, "encryption-database.yaml", "NAME", db, "CLASS", class, "SIZE", size, "SOURCE", source); err != nil {
		return err
	}
	return env.RunsOn(ctx, podOfDB(db), cipherNode)
}

func (c *cipherStory) databasesRun(ctx context.Context, env *scenario.Environment) error {
	for db, class := range map[string]string{thinDB: "encrypted-thin", stripedDB: "encrypted-striped"} {
		if err := c.database(ctx, env, db, class, "512Mi", "null", c.keys[db]); err != nil {
			return err
		}
		if _, err := env.QueryIn(ctx, podOfDB(db), "select 1"); err != nil {
			return err
		}
		if _, err := env.ExecInPod(ctx, podOfDB(db), "pgbench", "-i", "-q", "postgres"); err != nil {
			return err
		}
		sql := "create table known as select '" + c.pattern + "' || g as word from generate_series(1, 20000) g"
		if _, err := env.ExecInPod(ctx, podOfDB(db), "psql", "-qtA", "-c", sql, "-c", "checkpoint", "postgres"); err != nil {
			return err
		}
	}
	return nil
}

// plaintextIsNotOnDisks reads all extents of the disks that are in use. The same search finds the names of the volumes in LVM's metadata on the disks, and the
// plaintext on the mappings.
func (c *cipherStory) plaintextIsNotOnDisks(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.RunOnNode(ctx, cipherNode, "sync"); err != nil {
		return err
	}
	var names []string
	for _, db := range []string{thinDB, stripedDB} {
		v, err := env.VolumeOf(ctx, claimOfDB(db))
		if err != nil {
			return err
		}
		names = append(names, v.Lv)
		mapping, err := env.MappingOf(ctx, claimOfDB(db))
		if err != nil {
			return err
		}
		if err := onNode(ctx, env, "dd if=/dev/mapper/"+mapping+" bs=1M status=none", []string{c.pattern}, ""); err != nil {
			return err
		}
	}
	return onNode(ctx, env, allocated, names, c.pattern)
}

func (c *cipherStory) growUnderLoad(ctx context.Context, env *scenario.Environment) error {
	for _, db := range []string{thinDB, stripedDB} {
		if err := c.underLoad(ctx, env, db, func() error { return env.Expand(ctx, claimOfDB(db), podOfDB(db), cipherGrown) }); err != nil {
			return fmt.Errorf("%s: %w", db, err)
		}
		size, err := env.FileSystemSize(ctx, podOfDB(db), scenario.DatabasePath)
		if err != nil || size < 560<<20 {
			return errors.Join(err, fmt.Errorf("%s: the file system has %d MiB", db, size>>20))
		}
	}
	return nil
}

// underLoad does something while pgbench works: without a failed transaction, and without a restart.
func (c *cipherStory) underLoad(ctx context.Context, env *scenario.Environment, db string, do func() error) error {
	before, err := env.WaitPodReady(ctx, podOfDB(db))
	if err != nil {
		return err
	}
	load, err := env.StartPgbench(ctx, podOfDB(db))
	if err != nil {
		return err
	}
	done := do()
	transactions, err := load.Stop(ctx)
	if err := errors.Join(done, err); err != nil {
		return err
	}
	env.Reporter.Note("%s: pgbench's transactions meanwhile: %d", db, transactions)
	after, err := env.WaitPodReady(ctx, podOfDB(db))
	if err == nil && scenario.ContainerOf(before) != scenario.ContainerOf(after) {
		err = fmt.Errorf("the container was %s and is %s", scenario.ContainerOf(before), scenario.ContainerOf(after))
	}
	return err
}

func (c *cipherStory) copiesRun(ctx context.Context, env *scenario.Environment) error {
	err := c.underLoad(ctx, env, thinDB, func() error {
		if err := env.CreateSnapshot(ctx, thinDB, claimOfDB(thinDB)); err != nil {
			return err
		}
		return env.WaitSnapshotReady(ctx, thinDB)
	})
	if err != nil {
		return err
	}
	for db, source := range map[string]string{
		restoredDB: `{apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: ` + thinDB + `}`,
		clonedDB:   `{kind: PersistentVolumeClaim, name: ` + claimOfDB(thinDB) + `}`,
	} {
		if err := c.database(ctx, env, db, "encrypted-thin", cipherGrown, source, c.keys[thinDB]); err != nil {
			return err
		}
	}
	for _, db := range []string{thinDB, restoredDB, clonedDB} {
		agree, err := env.QueryIn(ctx, podOfDB(db), scenario.SumsAgreeQuery)
		if err == nil && agree != "t" {
			err = fmt.Errorf("pgbench's sums differ (%q)", agree)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", db, err)
		}
	}
	return nil
}

func (c *cipherStory) everythingEnds(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.InOrder(scenario.DeleteEverything, scenario.DeleteSnapshots)(ctx, env); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "delete", "secret", "-n", cluster.Namespace, "--all", "--wait"); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckOnlyPools(ctx) })
}
