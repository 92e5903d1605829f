package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// slowestTests is how many of the slowest tests the table names.
const slowestTests = 10

// table prints a row for each part, the slowest tests, why parts failed, and the sums.
func (s *schedule) table() error {
	var all []test
	var sum [3]int
	var sumCPU, sumCompiling time.Duration
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\nPART\tRESULT\tBEGAN\tTIME\tCPU\tCOMPILING\tPASSED\tFAILED\tSKIPPED")
	for _, p := range s.parts {
		result := "passed"
		if p.err != nil {
			result = "FAILED"
		}
		tests, err := p.tests()
		if err != nil && p.err == nil {
			return err
		}
		counts := count(tests)
		cpu, compiling := p.usage()
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.0f s\t%.0f s\t%d\t%d\t%d\n", p.name, result, clock(p.began.Sub(s.began)), clock(p.ended.Sub(p.began)),
			cpu.Seconds(), compiling.Seconds(), counts[0], counts[1], counts[2])
		for i := range sum {
			sum[i] += counts[i]
		}
		sumCPU, sumCompiling = sumCPU+cpu, sumCompiling+compiling
		all = append(all, tests...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.printf("\nThe slowest tests:\n")
	for _, t := range slowest(all) {
		s.printf("%7.1f s  %s\n", t.took.Seconds(), t.name)
	}
	for _, p := range s.parts {
		if p.err != nil {
			s.printf("\n%s FAILED: %v\n%s", p.name, p.err, p.explanation())
		}
	}
	s.printf("\nCPU %.1f s, of which compiling %.1f s\n", sumCPU.Seconds(), sumCompiling.Seconds())
	_, err := fmt.Fprintf(s.out, "%d passed, %d failed, %d skipped in %s\n", sum[0], sum[1], sum[2], clock(time.Since(s.began)))
	return err
}

// count returns the numbers of passed, failed and skipped tests.
func count(tests []test) (n [3]int) {
	for _, t := range tests {
		n[slices.Index([]string{"pass", "fail", "skip"}, t.action)]++
	}
	return n
}

func slowest(tests []test) []test {
	whole := slices.DeleteFunc(slices.Clone(tests), func(t test) bool { return !t.isWhole() })
	slices.SortStableFunc(whole, func(a, b test) int { return cmp.Compare(b.took, a.took) })
	return whole[:min(slowestTests, len(whole))]
}

func clock(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// event is one of test2json's (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
	Time                          time.Time
}

// test is one test with its result.
type test struct {
	pkg, name string
	action    string // pass, fail or skip
	took      time.Duration
}

func (t test) isWhole() bool { return !strings.Contains(t.name, "/") }

// readEvents passes each event of a file to each. An interrupted part may leave an incomplete file.
func readEvents(file string, each func(event)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	for decoder := json.NewDecoder(f); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		each(e)
	}
}

// tests returns the tests of the part that have a result.
func (p *part) tests() (tests []test, err error) {
	files, err := filepath.Glob(p.results + "-*.json")
	for _, file := range files {
		err = errors.Join(err, readEvents(file, func(e event) {
			if e.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
				tests = append(tests, test{e.Package, e.Test, e.Action, time.Duration(e.Elapsed * float64(time.Second))})
			}
		}))
	}
	return tests, err
}

// usage returns the processor time of the part, and how much of it was for compiling.
func (p *part) usage() (all, compiling time.Duration) {
	var seconds float64
	if text, err := os.ReadFile(p.results + ".usage"); err == nil {
		_ = json.Unmarshal(text, &seconds) // written by writeUsage; an interrupted part has none
	}
	compiling, _ = toolTime(p.results + ".tools")
	return time.Duration(seconds * float64(time.Second)), compiling
}
