package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// Pgbench is a load of pgbench in a pod, which runs until Stop.
type Pgbench struct {
	cluster *Cluster
	pod     string
	Before  int64 // number of transactions in the database before the load
	said    string
	ended   chan error
}

// pgbenchUntilEnough starts short runs one after the other. The exit code and the failure count of each prove that the database
// worked. The limited rate leaves time of the node's one processor for what a test does under the load.
const pgbenchUntilEnough = `rm -f /tmp/enough
until [ -e /tmp/enough ]; do pgbench -n -c 2 -R 20 -T 3 postgres 2>&1 || exit 1; done`

// StartPgbench starts the load, and returns when the database has committed the first transaction.
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

// Committed returns the number of pgbench's transactions in a pod's database.
func (c *Cluster) Committed(ctx context.Context, pod string) (count int64, err error) {
	answer, err := c.QueryIn(ctx, pod, "select count(*) from pgbench_history")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer, 10, 64)
}

// WaitCommitAfter waits until the database has committed more than count transactions.
func (l *Pgbench) WaitCommitAfter(ctx context.Context, count int64) error {
	return UnlessEnded(ctx, l.ended, "pgbench", func() error {
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

// Stop ends the load after the current run, and returns the number of transactions. It fails if one of them failed, or if there was
// none.
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

var transactionsPerSecond = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)

// TransactionsPerSecond measures the transactions of pgbench's four clients for five seconds in a pod; options are additional options.
func (c *Cluster) TransactionsPerSecond(ctx context.Context, pod string, options ...string) (float64, error) {
	said, err := c.ExecInPod(ctx, pod, append(append([]string{"pgbench"}, options...), "-n", "-c", "4", "-T", "5", "postgres")...)
	if err != nil {
		return 0, err
	}
	found := transactionsPerSecond.FindStringSubmatch(said)
	if found == nil {
		return 0, fmt.Errorf("pgbench reports no transactions: %s", said)
	}
	return strconv.ParseFloat(found[1], 64)
}

func sum(line *regexp.Regexp, text string) (total int) {
	for _, match := range line.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(match[1]) // the expression matches only digits
		total += n
	}
	return total
}
