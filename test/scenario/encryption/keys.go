package encryption

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

// anotherKey begins what the driver says of a key that does not open the volume.
const anotherKey = "the key in the Secret does not open volume"

// rotateUnderLoad replaces the key with an expansion, for which the kubelet passes the Secret.
func (c *cipherStory) rotateUnderLoad(ctx context.Context, env *scenario.Environment) error {
	claim, pod := claimOfDB(thinDB), podOfDB(thinDB)
	err := c.underLoad(ctx, env, thinDB, func() error {
		if err := env.ReplaceKeySecret(ctx, claim, map[string]string{"key": c.keys["rotated"], "previousKey": c.keys[thinDB]}); err != nil {
			return err
		}
		return env.Expand(ctx, claim, pod, "644Mi")
	})
	if err != nil {
		return err
	}
	for use, want := range map[string]bool{thinDB: false, "rotated": true, "wrong": false} {
		if opens, err := keyOpens(ctx, env, claim, c.keys[use]); err != nil || opens != want {
			return errors.Join(err, fmt.Errorf("the key %q opens the volume: %t", use, opens))
		}
	}
	return env.ReplaceKeySecret(ctx, claim, map[string]string{"key": c.keys["rotated"]})
}

// expandWithAnotherKey corrects nothing but the Secret: the kubelet repeats the expansion.
func (c *cipherStory) expandWithAnotherKey(ctx context.Context, env *scenario.Environment) error {
	const size = "648Mi"
	claim, pod := claimOfDB(thinDB), podOfDB(thinDB)
	return c.underLoad(ctx, env, thinDB, func() error {
		if err := env.ReplaceKeySecret(ctx, claim, map[string]string{"key": c.keys["wrong"]}); err != nil {
			return err
		}
		if err := env.RequestSize(ctx, claim, size); err != nil {
			return err
		}
		if err := env.WaitEvent(ctx, pod, anotherKey); err != nil {
			return err
		}
		if err := env.ReplaceKeySecret(ctx, claim, map[string]string{"key": c.keys["rotated"]}); err != nil {
			return err
		}
		return cluster.Eventually(ctx, func() error { return env.CheckExpanded(ctx, claim, size, "") })
	})
}

func (c *cipherStory) secretIsLost(ctx context.Context, env *scenario.Environment) error {
	return c.away(ctx, env, func() error {
		if err := env.Delete(ctx, "secret/"+claimOfDB(thinDB)); err != nil {
			return err
		}
		return c.says(ctx, env, `secrets "`+claimOfDB(thinDB)+`" not found`)
	})
}

func (c *cipherStory) keyIsWrong(ctx context.Context, env *scenario.Environment) error {
	return c.away(ctx, env, func() error {
		if err := env.ReplaceKeySecret(ctx, claimOfDB(thinDB), map[string]string{"key": c.keys["wrong"]}); err != nil {
			return err
		}
		return c.says(ctx, env, anotherKey)
	})
}

// says starts the database, and waits for the event that says why it does not run. Events of an earlier step could have the same words.
func (c *cipherStory) says(ctx context.Context, env *scenario.Environment, words string) error {
	ofPod := "involvedObject.name=" + podOfDB(thinDB)
	if _, err := env.Kubectl(ctx, "", "delete", "events", "-n", cluster.Namespace, "--field-selector", ofPod); err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "scale", "statefulset", thinDB, "-n", cluster.Namespace, "--replicas=1"); err != nil {
		return err
	}
	return env.WaitEvent(ctx, podOfDB(thinDB), words)
}

// away ends the database and waits until its volume is closed, has do take the key away, gives it back, and compares the rows.
func (c *cipherStory) away(ctx context.Context, env *scenario.Environment, do func() error) error {
	pod, claim := podOfDB(thinDB), claimOfDB(thinDB)
	before, err := env.QueryIn(ctx, pod, scenario.FingerprintQuery)
	if err != nil {
		return err
	}
	if _, err := env.Kubectl(ctx, "", "scale", "statefulset", thinDB, "-n", cluster.Namespace, "--replicas=0"); err != nil {
		return err
	}
	mapping, err := env.MappingOf(ctx, claim)
	if err != nil {
		return err
	}
	err = cluster.Eventually(ctx, func() error {
		open, err := env.RunOnNode(ctx, cipherNode, "dmsetup", "ls", "--target", "crypt")
		if err == nil && strings.Contains(string(open), mapping) {
			err = fmt.Errorf("mapping %s is still open", mapping)
		}
		return err
	})
	if err := errors.Join(err, do()); err != nil {
		return err
	}
	if err := env.ReplaceKeySecret(ctx, claim, map[string]string{"key": c.keys["rotated"]}); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, pod); err != nil {
		return err
	}
	after, err := env.QueryIn(ctx, pod, scenario.FingerprintQuery)
	if err == nil && after != before {
		err = fmt.Errorf("the database had %s and has %s", before, after)
	}
	return err
}

func (c *cipherStory) nodeReboots(ctx context.Context, env *scenario.Environment) error {
	databases := []string{thinDB, stripedDB, restoredDB, clonedDB}
	for _, db := range databases {
		rows, err := env.QueryIn(ctx, podOfDB(db), scenario.FingerprintQuery)
		if err != nil {
			return err
		}
		c.rows[db] = rows
	}
	began := time.Now()
	if err := env.RebootNode(ctx, cipherNode); err != nil {
		return err
	}
	if err := c.watch(ctx, env); err != nil {
		return err
	}
	for _, db := range databases {
		rows, err := env.ExecInPodAgain(ctx, podOfDB(db), "psql", "-qtA", "-c", scenario.FingerprintQuery, "postgres")
		if err == nil && rows != c.rows[db] {
			err = fmt.Errorf("it had %s and has %s", c.rows[db], rows)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", db, err)
		}
	}
	env.Reporter.Note("all databases answered %.0f s after the node's boot began", time.Since(began).Seconds())
	return nil
}
