package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// schedule runs parts in their order and reports on them.
type schedule struct {
	parts    []*part
	out      io.Writer
	interval time.Duration // between two reports
	began    time.Time
	labs     int // number of parts with nodes that may run at the same time

	mu sync.Mutex // guards the results of the parts, and out
}

// run runs all parts, jobs of them concurrently. When ctx ends, it interrupts the running ones and starts no other.
func (s *schedule) run(ctx context.Context, jobs int) {
	ended := make(chan *part)
	ticks := time.NewTicker(s.interval)
	defer ticks.Stop()
	for running := 0; ; {
		for ; running < jobs; running++ {
			p := s.next()
			if p == nil {
				break
			}
			go func() { s.runPart(ctx, p); ended <- p }()
		}
		if running == 0 {
			return
		}
		select {
		case <-ended:
			running--
		case <-ticks.C:
			s.report(time.Now())
		}
	}
}

// next returns the first part that can start now, and records its start; nil if there is none.
func (s *schedule) next() *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	labs := 0
	for _, p := range s.parts {
		if p.nodes && p.isRunning() {
			labs++
		}
	}
	at := slices.IndexFunc(s.parts, func(p *part) bool { return p.began.IsZero() && (!p.nodes || labs < s.labs) })
	if at < 0 {
		return nil
	}
	s.parts[at].began = time.Now()
	return s.parts[at]
}

func (s *schedule) runPart(ctx context.Context, p *part) {
	err := p.run(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	p.ended, p.err = time.Now(), err
	took := p.ended.Sub(p.began).Round(time.Second)
	if err == nil {
		s.printf("%s passed in %s\n", p.name, took)
		return
	}
	s.printf("%s FAILED after %s: %v; the end of this output says more\n", p.name, took, err)
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

// printf prints, and ignores errors: SIGPIPE interrupts the run if the output is closed.
func (s *schedule) printf(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format, args...) }

func (s *schedule) failed() (names []string) {
	for _, p := range s.parts {
		if p.err != nil {
			names = append(names, p.name)
		}
	}
	return names
}

// lastLine returns the last line of a log that is not blank.
func lastLine(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	const tail = 4096                // longer than any useful line of a report
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		_, _ = f.Seek(-tail, io.SeekEnd)
	}
	text, _ := io.ReadAll(f) // a report is useful without this line too
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}

func shorten(text string, length int) string {
	if runes := []rune(text); len(runes) > length {
		return string(runes[:length-1]) + "…"
	}
	return text
}

// idleTime is how long calibrate takes on an idle machine of the kind on which the tests' time limits were set: two processors that
// the hypervisor shares with other machines.
const idleTime = 900 * time.Millisecond

// slownessOfMachine compares this machine, with what else it does now, to that one; at least 1.
func slownessOfMachine() float64 { return max(1, calibrate().Seconds()/idleTime.Seconds()) }

// calibrate returns the time in which each processor sorts the same numbers.
func calibrate() time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, 2))
			numbers := make([]uint64, 1<<23)
			for i := range numbers {
				numbers[i] = random.Uint64()
			}
			slices.Sort(numbers)
		})
	}
	all.Wait()
	return time.Since(began)
}
