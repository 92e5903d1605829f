package scenario

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

func dataStays() Scenario {
	return Scenario{Title: "A deleted pod returns to its node and its data", Steps: []Step{
		{Says: "pgbench fills a database on pg-1 and runs its transactions", Prove: fillDatabase},
		{Says: "pg-1 is deleted and returns on the same node with every row", Prove: podReturns},
	}}
}

const databasePod = "pg-1"

// fingerprint sums up everything that pgbench has written.
const fingerprint = `select (select count(*) from pgbench_accounts), (select sum(abalance) from pgbench_accounts),
 (select count(*) from pgbench_history), (select sum(delta) from pgbench_history)`

func fillDatabase(ctx context.Context, env *Environment) error {
	if _, err := env.query(ctx, "select 1"); err != nil {
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
	rows, err := env.query(ctx, fingerprint)
	if err != nil {
		return err
	}
	env.rows[databasePod] = rows
	accounts, _, _ := strings.Cut(rows, "|")
	if accounts != "200000" {
		return fmt.Errorf("pgbench left %q", rows)
	}
	env.Reporter.Note("accounts|balance|transactions|their sum: %s", rows)
	return nil
}

func podReturns(ctx context.Context, env *Environment) error {
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
	rows, err := env.query(ctx, fingerprint)
	if err != nil {
		return err
	}
	if rows != env.rows[databasePod] {
		return fmt.Errorf("it had %s and has %s", env.rows[databasePod], rows)
	}
	return nil
}

// query asks the database.
func (env *Environment) query(ctx context.Context, sql string) (answer string, err error) {
	return env.QueryIn(ctx, databasePod, sql)
}

func blockAndXFS() Scenario {
	return Scenario{Title: "Raw block and xfs", Steps: []Step{
		{Says: "a raw-block claim and an xfs claim are used by one pod", Prove: readerRuns},
		{Says: "both are written to", Prove: writeBoth},
		{Says: "another pod reads both back, bit for bit", Prove: readBothBack},
	}}
}

// The pattern is computed, so that the second pod can check it without the first one's help.
const (
	pattern   = `seq 1 1000000 | head -c 4194304`
	writeRaw  = pattern + ` | dd of=/dev/raw-volume bs=1M conv=fsync 2>/dev/null`
	checkRaw  = pattern + ` > /tmp/want && head -c 4194304 /dev/raw-volume | cmp - /tmp/want`
	writeXFS  = pattern + ` > /xfs/file && sync`
	checkXFS  = pattern + ` > /tmp/want && cmp /xfs/file /tmp/want && grep -q ' /xfs xfs ' /proc/mounts`
	readerPod = "reader"
)

func readerRuns(ctx context.Context, env *Environment) error {
	if err := apply("block-xfs.yaml")(ctx, env); err != nil {
		return err
	}
	if err := apply("block-xfs-pod.yaml")(ctx, env); err != nil {
		return err
	}
	_, err := env.WaitPodReady(ctx, readerPod)
	return err
}

func writeBoth(ctx context.Context, env *Environment) error {
	return env.shells(ctx, writeRaw, writeXFS)
}

func readBothBack(ctx context.Context, env *Environment) error {
	if _, err := env.Kubectl(ctx, "", "delete", "pod", "-n", cluster.Namespace, readerPod, "--wait"); err != nil {
		return err
	}
	if err := apply("block-xfs-pod.yaml")(ctx, env); err != nil {
		return err
	}
	if _, err := env.WaitPodReady(ctx, readerPod); err != nil {
		return err
	}
	return env.shells(ctx, checkRaw, checkXFS)
}

func (env *Environment) shells(ctx context.Context, scripts ...string) error {
	for _, script := range scripts {
		if _, err := env.ExecInPod(ctx, readerPod, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

func cleanUp() Scenario {
	return Scenario{Title: "Nothing is left behind", Steps: []Step{
		{Says: "every pod and claim is deleted, and the class that no claim can use", Prove: cleanUpObjects},
		{Says: "once the wipe has ended no logical volume remains on any node", Prove: noVolumesRemain},
		{Says: "capacity has returned to the first figures", Prove: capacityReturned},
	}}
}

func cleanUpObjects(ctx context.Context, env *Environment) error {
	if err := deleteEverything(ctx, env); err != nil {
		return err
	}
	_, err := env.Kubectl(ctx, "", "delete", "storageclass", "too-early") // the doctor would report it
	return err
}

// noVolumesRemain removes empty thin pools, which the driver keeps for some time.
func noVolumesRemain(ctx context.Context, env *Environment) error {
	return cluster.Eventually(ctx, func() error {
		for _, node := range env.Lab.NodeNames() {
			if _, err := env.RunOnNode(ctx, node, "sh", "-ec", dropPool); err != nil {
				return err
			}
		}
		return env.CheckNoVolumes(ctx)
	})
}

func deleteEverything(ctx context.Context, env *Environment) error {
	for _, args := range [][]string{
		{"delete", "statefulset", "-n", cluster.Namespace, "--all", "--wait"},
		{"delete", "pod", "-n", cluster.Namespace, "--all", "--wait"},
		{"delete", "pvc", "-n", cluster.Namespace, "--all", "--wait"},
	} {
		if _, err := env.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return cluster.Eventually(ctx, func() error {
		list, err := env.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d PVs are still there", len(list.Items))
		}
		return nil
	})
}

func capacityReturned(ctx context.Context, env *Environment) error {
	if err := capacityAgrees(ctx, env); err != nil {
		return err
	}
	rows := [][]string{}
	for _, node := range env.Lab.NodeNames() {
		count, size, err := env.FreeExtents(ctx, node)
		if err != nil {
			return err
		}
		if count != env.freeAtFirst[node] {
			return fmt.Errorf("%s had %d free extents at first and has %d", node, env.freeAtFirst[node], count)
		}
		rows = append(rows, []string{node, fmt.Sprint(count), cluster.Mebibytes(fmt.Sprint(count * size))})
	}
	env.Reporter.Table([]string{"NODE", "FREE EXTENTS", "FREE"}, rows)
	return nil
}
