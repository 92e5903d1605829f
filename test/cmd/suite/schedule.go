package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// part is one part of the suite: a command with a log.
type part struct {
	name string
	argv []string
	log  string

	began, ended time.Time // zero: not yet
	err          error
}

// schedule runs parts in their order and reports on them.
type schedule struct {
	parts    []*part
	out      io.Writer
	interval time.Duration // between two reports
	began    time.Time

	mu sync.Mutex // guards the results of the parts, and out
}

// run runs all parts, jobs of them concurrently. When ctx ends, it interrupts the running ones and starts no other.
func (s *schedule) run(ctx context.Context, jobs int) {
	queue := make(chan *part, len(s.parts))
	for _, p := range s.parts {
		queue <- p
	}
	close(queue)
	var workers sync.WaitGroup
	for range jobs {
		workers.Go(func() {
			for p := range queue {
				s.runPart(ctx, p)
			}
		})
	}
	done := make(chan struct{})
	go func() { workers.Wait(); close(done) }()
	ticks := time.NewTicker(s.interval)
	defer ticks.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticks.C:
			s.report(time.Now())
		}
	}
}

func (s *schedule) runPart(ctx context.Context, p *part) {
	s.mu.Lock()
	p.began = time.Now()
	s.mu.Unlock()
	err := p.run(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.ended, p.err = time.Now(), err
	took := p.ended.Sub(p.began).Round(time.Second)
	if err == nil {
		s.printf("%s passed in %s\n", p.name, took)
		return
	}
	s.printf("\n%s FAILED after %s: %v. The end of %s:\n%s\n", p.name, took, err, p.log, explanation(p.log))
}

// interruptTime limits how long an interrupted part may take to end.
const interruptTime = time.Minute

func (p *part) run(ctx context.Context) (err error) {
	if ctx.Err() != nil {
		return errors.New("not started: the suite was interrupted")
	}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptTime
	return cmd.Run()
}

// report prints the running parts, each with the last line of its log, and those that are left.
func (s *schedule) report(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var running, left []string
	for _, p := range s.parts {
		switch {
		case p.began.IsZero():
			left = append(left, p.name)
		case p.ended.IsZero():
			running = append(running, fmt.Sprintf("%s %s (%s)", p.name, now.Sub(p.began).Round(time.Second), shorten(lastLine(p.log), 60)))
		}
	}
	s.printf("[%s] runs: %s", now.Sub(s.began).Round(time.Second), strings.Join(running, ", "))
	if len(left) > 0 {
		s.printf("; left: %s", strings.Join(left, ", "))
	}
	s.printf("\n")
}

// printf prints, and ignores errors: the parts continue if the output is closed.
func (s *schedule) printf(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format, args...) }

func (s *schedule) failed() (names []string) {
	for _, p := range s.parts {
		if p.err != nil {
			names = append(names, p.name)
		}
	}
	return names
}
