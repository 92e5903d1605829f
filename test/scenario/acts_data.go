package scenario

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func dataStays() Act {
	return Act{Title: "The pod goes, its data stays, the pod comes back to it", Steps: []Step{
		{Says: "pgbench fills a database on pg-1 and runs its transactions", Prove: fillDatabase},
		{Says: "pg-1 is deleted and returns on the same node with every row", Prove: podReturns},
	}}
}

const databasePod = "pg-1"

// fingerprint sums up everything that pgbench has written.
const fingerprint = `select (select count(*) from pgbench_accounts), (select sum(abalance) from pgbench_accounts),
 (select count(*) from pgbench_history), (select sum(delta) from pgbench_history)`

func fillDatabase(ctx context.Context, s *Stage) error {
	if _, err := s.query(ctx, "select 1"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"pgbench", "-i", "-q", "-s", "2", "postgres"},
		{"pgbench", "-n", "-c", "4", "-t", "50", "postgres"},
	} {
		if _, err := s.inPod(ctx, databasePod, args...); err != nil {
			return err
		}
	}
	rows, err := s.query(ctx, fingerprint)
	if err != nil {
		return err
	}
	s.rows[databasePod] = rows
	accounts, _, _ := strings.Cut(rows, "|")
	if accounts != "200000" {
		return fmt.Errorf("pgbench left %q", rows)
	}
	s.Narrator.Note("accounts|balance|transactions|their sum: %s", rows)
	return nil
}

func podReturns(ctx context.Context, s *Stage) error {
	before, err := s.Client.CoreV1().Pods(Namespace).Get(ctx, databasePod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := s.Client.CoreV1().Pods(Namespace).Delete(ctx, databasePod, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := eventually(ctx, func() error { return s.podReplaced(ctx, databasePod, before.UID) }); err != nil {
		return err
	}
	after, err := s.podReady(ctx, databasePod)
	if err != nil {
		return err
	}
	if after.Spec.NodeName != before.Spec.NodeName {
		return fmt.Errorf("it ran on %s and returned on %s", before.Spec.NodeName, after.Spec.NodeName)
	}
	rows, err := s.query(ctx, fingerprint)
	if err != nil {
		return err
	}
	if rows != s.rows[databasePod] {
		return fmt.Errorf("it had %s and has %s", s.rows[databasePod], rows)
	}
	return nil
}

// query asks the database.
func (s *Stage) query(ctx context.Context, sql string) (answer string, err error) {
	return s.queryIn(ctx, databasePod, sql)
}

// queryIn asks the database of a pod, again while it is still starting up.
func (s *Stage) queryIn(ctx context.Context, pod, sql string) (answer string, err error) {
	err = eventually(ctx, func() error {
		answer, err = s.inPod(ctx, pod, "psql", "-qtA", "-c", sql, "postgres")
		return err
	})
	return answer, err
}

func (s *Stage) podReplaced(ctx context.Context, name string, old types.UID) error {
	pod, err := s.Client.CoreV1().Pods(Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if pod.UID == old {
		return fmt.Errorf("pod %s is still the old one", name)
	}
	return nil
}

// inPod runs a command in a pod's first container.
func (s *Stage) inPod(ctx context.Context, pod string, argv ...string) (string, error) {
	return s.kubectl(ctx, "", append([]string{"exec", "-n", Namespace, pod, "--"}, argv...)...)
}

func blockAndXFS() Act {
	return Act{Title: "Raw block and xfs", Steps: []Step{
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

func readerRuns(ctx context.Context, s *Stage) error {
	if err := apply("block-xfs.yaml")(ctx, s); err != nil {
		return err
	}
	if err := apply("block-xfs-pod.yaml")(ctx, s); err != nil {
		return err
	}
	_, err := s.podReady(ctx, readerPod)
	return err
}

func writeBoth(ctx context.Context, s *Stage) error {
	return s.shells(ctx, writeRaw, writeXFS)
}

func readBothBack(ctx context.Context, s *Stage) error {
	if _, err := s.kubectl(ctx, "", "delete", "pod", "-n", Namespace, readerPod, "--wait"); err != nil {
		return err
	}
	if err := apply("block-xfs-pod.yaml")(ctx, s); err != nil {
		return err
	}
	if _, err := s.podReady(ctx, readerPod); err != nil {
		return err
	}
	return s.shells(ctx, checkRaw, checkXFS)
}

func (s *Stage) shells(ctx context.Context, scripts ...string) error {
	for _, script := range scripts {
		if _, err := s.inPod(ctx, readerPod, "sh", "-c", script); err != nil {
			return err
		}
	}
	return nil
}

func cleanUp() Act {
	return Act{Title: "Nothing is left behind", Steps: []Step{
		{Says: "every pod and claim is deleted", Prove: deleteEverything},
		{Says: "once the wipe has ended no logical volume remains on any node", Prove: func(ctx context.Context, s *Stage) error {
			return eventually(ctx, func() error { return s.noVolumes(ctx) })
		}},
		{Says: "capacity has returned to the first figures", Prove: capacityReturned},
	}}
}

func deleteEverything(ctx context.Context, s *Stage) error {
	for _, args := range [][]string{
		{"delete", "statefulset", "-n", Namespace, "--all", "--wait"},
		{"delete", "pod", "-n", Namespace, "--all", "--wait"},
		{"delete", "pvc", "-n", Namespace, "--all", "--wait"},
	} {
		if _, err := s.kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	return eventually(ctx, func() error {
		list, err := s.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d PVs are still there", len(list.Items))
		}
		return nil
	})
}

func capacityReturned(ctx context.Context, s *Stage) error {
	if err := capacityAgrees(ctx, s); err != nil {
		return err
	}
	rows := [][]string{}
	for _, node := range s.Lab.NodeNames() {
		count, size, err := s.freeExtents(ctx, node)
		if err != nil {
			return err
		}
		if count != s.freeAtFirst[node] {
			return fmt.Errorf("%s had %d free extents at first and has %d", node, s.freeAtFirst[node], count)
		}
		rows = append(rows, []string{node, fmt.Sprint(count), mebibytes(fmt.Sprint(count * size))})
	}
	s.Narrator.Table([]string{"NODE", "FREE EXTENTS", "FREE"}, rows)
	return nil
}
