package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// rowPause leaves time of the node's one processor to others.
const rowPause = 100 * time.Millisecond

// Writer inserts rows into the table acked of a pod's database, each after the acknowledgement of the previous one.
type Writer struct {
	Acked    atomic.Int64 // the last acknowledged row
	stopping atomic.Bool
	ended    chan error
}

// StartWriter starts a writer after the existing row last.
func (c *Cluster) StartWriter(ctx context.Context, pod string, last int64) (*Writer, error) {
	// Files, not io.Pipe: if psql ends early, the read below returns.
	fromUs, statements, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, toUs, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, fromUs.Close(), statements.Close())
	}
	w := &Writer{ended: make(chan error, 1)}
	w.Acked.Store(last)
	psql := make(chan error, 1)
	go func() {
		var errs bytes.Buffer
		err := c.Lab.Kubectl(ctx, fromUs, toUs, &errs,
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

func (w *Writer) write(statements *os.File, answers *bufio.Scanner) error {
	for n := w.Acked.Load() + 1; !w.stopping.Load(); n++ {
		if _, err := fmt.Fprintf(statements, "insert into acked values (%d) returning n;\n", n); err != nil {
			return err
		}
		if !answers.Scan() {
			return errors.Join(fmt.Errorf("row %d was not acknowledged", n), answers.Err())
		}
		if answers.Text() != strconv.FormatInt(n, 10) {
			return fmt.Errorf("row %d was answered with %q", n, answers.Text())
		}
		w.Acked.Store(n)
		time.Sleep(rowPause)
	}
	return nil
}

// Reaches waits until row n is acknowledged.
func (w *Writer) Reaches(ctx context.Context, n int64) error {
	return UnlessEnded(ctx, w.ended, "the writer", func() error {
		if acked := w.Acked.Load(); acked < n {
			return fmt.Errorf("row %d is acknowledged, %d is wanted", acked, n)
		}
		return nil
	})
}

// Stop ends the writer after its last row.
func (w *Writer) Stop() error {
	w.stopping.Store(true)
	return <-w.ended
}
