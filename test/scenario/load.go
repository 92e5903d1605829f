package scenario

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"
)

// load is pgbench at work in a pod, for as long as a step wants.
type load struct {
	stage  *Stage
	pod    string
	before int64 // the transactions that the database had already
	said   string
	ended  chan error
}

// Short runs one after the other: each proves by its exit code and by its count of failures that the database served it.
// The rate leaves the node's one processor some time for what the load is to be observed under.
const pgbenchUntilEnough = `rm -f /tmp/enough
until [ -e /tmp/enough ]; do pgbench -n -c 2 -R 20 -T 3 postgres 2>&1 || exit 1; done`

// startLoad returns when the first transactions have been committed.
func (s *Stage) startLoad(ctx context.Context, pod string) (*load, error) {
	before, err := s.committed(ctx, pod)
	if err != nil {
		return nil, err
	}
	l := &load{stage: s, pod: pod, before: before, ended: make(chan error, 1)}
	go func() {
		var err error
		l.said, err = s.inPod(ctx, pod, "sh", "-c", pgbenchUntilEnough)
		l.ended <- err
	}()
	return l, l.passes(ctx, before)
}

// committed counts the transactions of pgbench that a pod's database has.
func (s *Stage) committed(ctx context.Context, pod string) (count int64, err error) {
	answer, err := s.queryIn(ctx, pod, "select count(*) from pgbench_history")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(answer, 10, 64)
}

// passes waits until more than so many transactions have been committed.
func (l *load) passes(ctx context.Context, count int64) error {
	return unlessEnded(ctx, l.ended, "pgbench", func() error {
		now, err := l.stage.committed(ctx, l.pod)
		if err == nil && now <= count {
			err = fmt.Errorf("pgbench has committed nothing since transaction %d", count)
		}
		return err
	})
}

// unlessEnded is eventually; it gives up when what reports its end there has ended, and leaves the report there.
func unlessEnded(ctx context.Context, ended chan error, what string, ok func() error) error {
	var end error
	err := eventually(ctx, func() error {
		select {
		case report := <-ended:
			ended <- report
			end = errors.Join(errors.New(what+" has ended"), report)
			return nil
		default:
			return ok()
		}
	})
	return cmp.Or(err, end)
}

var (
	transactionsLine = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	failuresLine     = regexp.MustCompile(`number of failed transactions: (\d+)`)
)

// stop ends the load after the run that is under way and tells how many transactions there were. It is an error if any
// of them failed, or if there was none.
func (l *load) stop(ctx context.Context) (transactions int, err error) {
	if _, err := l.stage.inPod(ctx, l.pod, "touch", "/tmp/enough"); err != nil {
		return 0, err
	}
	if err := <-l.ended; err != nil {
		return 0, fmt.Errorf("pgbench: %w\n%s", err, tail(l.said, 2000))
	}
	transactions, failed := sum(transactionsLine, l.said), sum(failuresLine, l.said)
	if transactions == 0 || failed > 0 || !failuresLine.MatchString(l.said) {
		return transactions, fmt.Errorf("pgbench: %d transactions, %d failed\n%s", transactions, failed, tail(l.said, 2000))
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

// rowPause is the writer's share in leaving the node's one processor some time.
const rowPause = 100 * time.Millisecond

// writer inserts rows into the table acked of a pod's database, each after the one before was acknowledged.
type writer struct {
	acked    atomic.Int64 // the last row whose commit was acknowledged
	stopping atomic.Bool
	ended    chan error
}

// startWriter begins behind the last row that is there.
func (s *Stage) startWriter(ctx context.Context, pod string, last int64) (*writer, error) {
	// Files, not io.Pipe: when psql ends early the read below sees the end.
	fromUs, statements, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, toUs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, fromUs.Close(), statements.Close())
	}
	w := &writer{ended: make(chan error, 1)}
	w.acked.Store(last)
	psql := make(chan error, 1)
	go func() {
		var errs bytes.Buffer
		err := s.Lab.Kubectl(ctx, fromUs, toUs, &errs,
			"exec", "-i", "-n", Namespace, pod, "--", "psql", "-qtA", "-v", "ON_ERROR_STOP=1", "postgres")
		if err != nil {
			err = fmt.Errorf("psql: %w: %s", err, errs.String())
		}
		psql <- errors.Join(err, fromUs.Close(), toUs.Close())
	}()
	go func() {
		err := w.write(statements, bufio.NewScanner(answers))
		err = errors.Join(err, statements.Close(), <-psql)
		w.ended <- errors.Join(err, answers.Close())
	}()
	return w, nil
}

func (w *writer) write(statements *os.File, answers *bufio.Scanner) error {
	for n := w.acked.Load() + 1; !w.stopping.Load(); n++ {
		if _, err := fmt.Fprintf(statements, "insert into acked values (%d) returning n;\n", n); err != nil {
			return err
		}
		if !answers.Scan() {
			return errors.Join(fmt.Errorf("row %d was not acknowledged", n), answers.Err())
		}
		if answers.Text() != strconv.FormatInt(n, 10) {
			return fmt.Errorf("row %d was answered with %q", n, answers.Text())
		}
		w.acked.Store(n)
		time.Sleep(rowPause)
	}
	return nil
}

// reaches waits until row n is acknowledged.
func (w *writer) reaches(ctx context.Context, n int64) error {
	return unlessEnded(ctx, w.ended, "the writer", func() error {
		if acked := w.acked.Load(); acked < n {
			return fmt.Errorf("row %d is acknowledged, %d is wanted", acked, n)
		}
		return nil
	})
}

// stop ends the writer after its last row.
func (w *writer) stop() error {
	w.stopping.Store(true)
	return <-w.ended
}
