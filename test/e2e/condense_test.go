//go:build e2e

package e2e

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// result is a line that `go test -v` prints at the end of a test; a subtest's is indented.
var result = regexp.MustCompile(`^(\s*)--- (PASS|FAIL|SKIP): (\S+)`)

// outcome is what a binary said of one test.
type outcome struct {
	word, name string
	subtest    bool
}

// stdout is written by several tests at the same time, whole lines each.
var stdout sync.Mutex

// condensed passes on the useful part of `go test -v` with a prefix that names its source: the result of each test, and the output
// of a failed or skipped one. Each half minute it prints the name of the running test, so that a long test does not seem blocked.
type condensed struct {
	prefix   string
	to       io.Writer
	now      func() time.Time
	line     bytes.Buffer
	held     bytes.Buffer // what the running test printed
	fate     fate
	shown    time.Time // when something was last passed on
	outcomes []outcome
}

const silence = 30 * time.Second

// fate is what becomes of a line that is no result of a test and does not begin one.
type fate int

const (
	keep fate = iota // until the test that printed it ends
	pass             // it belongs to a test that failed
	drop             // it belongs to a test that passed
)

func (c *condensed) Write(b []byte) (int, error) {
	c.line.Write(b)
	for {
		end := bytes.IndexByte(c.line.Bytes(), '\n')
		if end < 0 {
			return len(b), nil
		}
		if err := c.take(string(c.line.Next(end + 1))); err != nil {
			return 0, err
		}
	}
}

func (c *condensed) take(line string) error {
	if name, begins := strings.CutPrefix(line, "=== RUN"); begins {
		c.fate = keep
		c.held.WriteString(line)
		if c.now().Sub(c.shown) > silence {
			return c.show("... " + strings.TrimSpace(name) + "\n")
		}
		return nil
	}
	if match := result.FindStringSubmatch(line); match != nil {
		o := outcome{word: match[2], name: match[3], subtest: match[1] != ""}
		c.outcomes = append(c.outcomes, o)
		if !o.subtest {
			return c.end(o, line)
		}
	}
	switch c.fate {
	case keep:
		c.held.WriteString(line)
	case pass:
		return c.show(line)
	case drop:
	}
	return nil
}

func (c *condensed) end(o outcome, line string) error {
	if o.word == "PASS" {
		c.fate = drop
		c.held.Reset()
		return c.show(line)
	}
	c.fate = pass
	c.held.WriteString(line)
	return c.rest()
}

// rest passes on what is held back: of a failed test, or of a binary that ended in the middle of one.
func (c *condensed) rest() error { return c.show(string(c.held.Next(c.held.Len()))) }

func (c *condensed) show(text string) error {
	c.shown = c.now()
	stdout.Lock()
	defer stdout.Unlock()
	for line := range strings.Lines(text) {
		if _, err := io.WriteString(c.to, c.prefix+line); err != nil {
			return err
		}
	}
	return nil
}

func TestCondensed(t *testing.T) {
	const printed = `=== RUN   TestGood
=== RUN   TestGood/sub
    good_test.go:1: a remark
--- PASS: TestGood (1.00s)
    --- PASS: TestGood/sub (0.50s)
=== RUN   TestBad
=== RUN   TestBad/sub
    bad_test.go:7: not so
--- FAIL: TestBad (1.00s)
    --- FAIL: TestBad/sub (0.50s)
=== RUN   TestLong
=== RUN   TestLong/first
=== RUN   TestLong/second
panic: all is lost
`
	const want = `--- PASS: TestGood (1.00s)
=== RUN   TestBad
=== RUN   TestBad/sub
    bad_test.go:7: not so
--- FAIL: TestBad (1.00s)
    --- FAIL: TestBad/sub (0.50s)
... TestLong/second
=== RUN   TestLong
=== RUN   TestLong/first
=== RUN   TestLong/second
panic: all is lost
`
	var out strings.Builder
	clock := time.Now()
	c := condensed{prefix: "node-1  ", to: &out, shown: clock, now: func() time.Time { return clock }}
	for line := range strings.Lines(printed) {
		if strings.Contains(line, "second") {
			clock = clock.Add(2 * silence)
		}
		for _, part := range []string{line[:3], line[3:]} { // as a pipe may cut it
			if _, err := c.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.rest(); err != nil {
		t.Fatal(err)
	}
	prefixed := "node-1  " + strings.TrimSuffix(strings.ReplaceAll(want, "\n", "\nnode-1  "), "node-1  ")
	if out.String() != prefixed {
		t.Errorf("it shows:\n%swant:\n%s", out.String(), prefixed)
	}
	wantOutcomes := []outcome{{"PASS", "TestGood", false}, {"PASS", "TestGood/sub", true}, {"FAIL", "TestBad", false}, {"FAIL", "TestBad/sub", true}}
	if !slices.Equal(c.outcomes, wantOutcomes) {
		t.Errorf("outcomes %v", c.outcomes)
	}
}
