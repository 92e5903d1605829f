package demo

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
	"github.com/nodelvm/nodelvm/test/scenario"
)

func (s *state) dataStays() scenario.Scenario {
	return scenario.Scenario{Title: "A deleted pod returns to its node and its data", Steps: []scenario.Step{
		{Says: "pgbench fills a database on pg-1 and runs its transactions", Prove: s.fillDatabase},
		{Says: "pg-1 is deleted and returns on the same node with every row", Prove: s.podReturns},
	}}
}

const databasePod = "pg-1"

func (s *state) fillDatabase(ctx context.Context, env *scenario.Environment) error {
	if _, err := query(ctx, env, "select 1"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"pgbench", "-i", "-q", "-s", "2", "postgres"},
		{"pgbench", "-n", "-c", "4", "-t", "50", "postgres"},
	} {
		if _, err := env.ExecInPod(ctx, databasePod, args...); err != nil {
			return err
		}
	}
	rows, err := query(ctx, env, scenario.FingerprintQuery)
	if err != nil {
		return err
	}
	s.rows = rows
	accounts, _, _ := strings.Cut(rows, "|")
	if accounts != "200000" {
		return fmt.Errorf("pgbench left %q", rows)
	}
	env.Reporter.Note("accounts|balance|transactions|their sum: %s", rows)
	return nil
}

func (s *state) podReturns(ctx context.Context, env *scenario.Environment) error {
	before, err := env.Client.CoreV1().Pods(cluster.Namespace).Get(ctx, databasePod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := env.Client.CoreV1().Pods(cluster.Namespace).Delete(ctx, databasePod, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error { return env.PodReplaced(ctx, databasePod, before.UID) }); err != nil {
		return err
	}
	after, err := env.WaitPodReady(ctx, databasePod)
	if err != nil {
		return err
	}
	if after.Spec.NodeName != before.Spec.NodeName {
		return fmt.Errorf("it ran on %s and returned on %s", before.Spec.NodeName, after.Spec.NodeName)
	}
	rows, err := query(ctx, env, scenario.FingerprintQuery)
	if err != nil {
		return err
	}
	if rows != s.rows {
		return fmt.Errorf("it had %s and has %s", s.rows, rows)
	}
	return nil
}

// query asks the database.
func query(ctx context.Context, env *scenario.Environment, sql string) (answer string, err error) {
	return env.QueryIn(ctx, databasePod, sql)
}

func blockAndXFS() scenario.Scenario {
	return scenario.Scenario{Title: "Raw block and xfs", Steps: []scenario.Step{
		{Says: "a raw-block claim and an xfs claim are used by one pod", Prove: scenario.InOrder(scenario.Apply("block-xfs.yaml", "block-xfs-pod.yaml"), scenario.PodReady(readerPod))},
		{Says: "both are written to", Prove: writeBoth},
		{Says: "another pod reads both back, bit for bit", Prove: readBothBack},
	}}
}

// The pattern is computed, so that the second pod can check it without the first one's help.
const (
	writeRaw  = scenario.PatternCommand + ` | dd of=/dev/raw-volume bs=1M conv=fsync 2>/dev/null`
	checkRaw  = scenario.PatternCommand + ` > /tmp/want && head -c 4194304 /dev/raw-volume | cmp - /tmp/want`
	writeXFS  = scenario.PatternCommand + ` > /xfs/file && sync`
	checkXFS  = scenario.PatternCommand + ` > /tmp/want && cmp /xfs/file /tmp/want && grep -q ' /xfs xfs ' /proc/mounts`
	readerPod = "reader"
)

func writeBoth(ctx context.Context, env *scenario.Environment) error {
	return shells(ctx, env, writeRaw, writeXFS)
}

func readBothBack(ctx context.Context, env *scenario.Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.Namespace, readerPod, "--wait"); err != nil {
		return err
	}
	if err := scenario.InOrder(scenario.Apply("block-xfs-pod.yaml"), scenario.PodReady(readerPod))(ctx, env); err != nil {
		return err
	}
	return shells(ctx, env, checkRaw, checkXFS)
}

func shells(ctx context.Context, env *scenario.Environment, scripts ...string) error {
	for _, script := range scripts {
		if _, err := env.ExecInPod(ctx, readerPod, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

func (s *state) cleanUp() scenario.Scenario {
	return scenario.Scenario{Title: "Nothing is left behind", Steps: []scenario.Step{
		{Says: "every pod and claim is deleted, and the class that no claim can use", Prove: cleanUpObjects},
		{Says: "once the wipe has ended no logical volume remains on any node", Prove: scenario.NoVolumesRemain},
		{Says: "capacity has returned to the first figures", Prove: s.capacityReturned},
	}}
}

func cleanUpObjects(ctx context.Context, env *scenario.Environment) error {
	if err := scenario.DeleteEverything(ctx, env); err != nil {
		return err
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "too-early") // the doctor would report it
	return err
}

func (s *state) capacityReturned(ctx context.Context, env *scenario.Environment) error {
	if err := s.capacityAgrees(ctx, env); err != nil {
		return err
	}
	rows := [][]string{}
	for _, node := range env.Lab.NodeNames() {
		count, size, err := env.FreeExtents(ctx, node)
		if err != nil {
			return err
		}
		if count != s.freeAtFirst[node] {
			return fmt.Errorf("%s had %d free extents at first and has %d", node, s.freeAtFirst[node], count)
		}
		rows = append(rows, []string{node, fmt.Sprint(count), cluster.Mebibytes(fmt.Sprint(count * size))})
	}
	env.Reporter.Table([]string{"NODE", "FREE EXTENTS", "FREE"}, rows)
	return nil
}
