package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// Pgbench is pgbench at work in a pod, for as long as a step wants.
type Pgbench struct {
	cluster *Cluster
	pod     string
	Before  int64 // the transactions that the database had already
	said    string
	ended   chan error
}

// Short runs one after the other: each proves by its exit code and by its count of failures that the database served it.
// The rate leaves the node's one processor some time for what the load is to be observed under.
const pgbenchUntilEnough = `rm -f /tmp/enough
until [ -e /tmp/enough ]; do pgbench -n -c 2 -R 20 -T 3 postgres 2>&1 || exit 1; done`

// StartPgbench returns when the first transactions have been committed.
func (c *Cluster) StartPgbench(ctx context.Context, pod string) (*Pgbench, error) {
	before, err := c.Committed(ctx, pod)
	if err != nil {
		return nil, err
	}
	l := &Pgbench{cluster: c, pod: pod, Before: before, ended: make(chan error, 1)}
	go func() {
		var err error
		l.said, err = c.ExecInPod(ctx, pod, "sh", "-c", pgbenchUntilEnough)
		l.ended <- err
	}()
	return l, l.WaitCommitAfter(ctx, before)
}

// Committed counts the transactions of pgbench that a pod's database has.
func (c *Cluster) Committed(ctx context.Context, pod string) (count int64, err error) {
	answer, err := c.QueryIn(ctx, pod, "select count(*) from pgbench_history")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer, 10, 64)
}

// WaitCommitAfter waits until more than so many transactions have been committed.
func (l *Pgbench) WaitCommitAfter(ctx context.Context, count int64) error {
	return unlessEnded(ctx, l.ended, "pgbench", func() error {
		now, err := l.cluster.Committed(ctx, l.pod)
		if err == nil && now <= count {
			err = fmt.Errorf("pgbench has committed nothing since transaction %d", count)
		}
		return err
	})
}

var (
	transactionsLine = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	failuresLine     = regexp.MustCompile(`number of failed transactions: (\d+)`)
)

// Stop ends the load after the run that is under way and tells how many transactions there were. It is an error if any
// of them failed, or if there was none.
func (l *Pgbench) Stop(ctx context.Context) (transactions int, err error) {
	if _, err := l.cluster.ExecInPod(ctx, l.pod, "touch", "/tmp/enough"); err != nil {
		return 0, err
	}
	if err := <-l.ended; err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, Tail(l.said, 2000))
	}
	transactions, failed := sum(transactionsLine, l.said), sum(failuresLine, l.said)
	if transactions == 0 || failed > 0 || !failuresLine.MatchString(l.said) {
		return transactions, fmt.Errorf("pgbench: %d transactions, %d failed\n%s", transactions, failed, Tail(l.said, 2000))
	}
	return transactions, nil
}

func sum(line *regexp.Regexp, text string) (total int) {
	for _, match := range line.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1]) // digits, by the expression
		total += n
	}
	return total
}
