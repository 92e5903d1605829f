package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// counts are numbers of tests by result.
type counts struct{ passed, failed, skipped int }

// count adds the tests of one file with test2json's events.
func (c *counts) count(events io.Reader) error {
	decoder := json.NewDecoder(events)
	for {
		var event struct{ Action, Test string }
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if event.Test == "" { // a package
			continue
		}
		switch event.Action {
		case "pass":
			c.passed++
		case "fail":
			c.failed++
		case "skip":
			c.skipped++
		}
	}
}

// countFiles counts the tests in the files that a part wrote to the folder.
func countFiles(dir, name string) (c counts, err error) {
	files, err := filepath.Glob(filepath.Join(dir, name+"-*.json"))
	for _, file := range files {
		events, openErr := os.Open(file)
		if openErr != nil {
			return c, openErr
		}
		if countErr := errors.Join(c.count(bufio.NewReader(events)), events.Close()); countErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", file, countErr))
		}
	}
	return c, err
}

// table prints a row for each part, and the sums. An interrupted part may leave an incomplete file: its row has the tests that
// could be read.
func (s *schedule) table(dir string) error {
	var sum counts
	w := tabwriter.NewWriter(s.out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "\nPART\tRESULT\tBEGAN\tTIME\tPASSED\tFAILED\tSKIPPED")
	for _, p := range s.parts {
		result := "passed"
		if p.err != nil {
			result = "FAILED"
		}
		c, err := countFiles(dir, p.name)
		if err != nil && p.err == nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\n", p.name, result, clock(p.began.Sub(s.began)), clock(p.ended.Sub(p.began)), c.passed, c.failed, c.skipped)
		sum = counts{sum.passed + c.passed, sum.failed + c.failed, sum.skipped + c.skipped}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(s.out, "\n%d passed, %d failed, %d skipped in %s\n", sum.passed, sum.failed, sum.skipped, clock(time.Since(s.began)))
	return err
}

func clock(d time.Duration) string {
	seconds := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// failureLine matches a line in which go test or gotestsum names a failed test.
var failureLine = regexp.MustCompile(`^\s*(=== FAIL|--- FAIL)`)

const explanationLines = 80

// explanation returns the end of a log, preceded by the lines before it that name failed tests.
func explanation(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	end := max(0, len(lines)-explanationLines)
	names := slices.DeleteFunc(slices.Clone(lines[:end]), func(line string) bool { return !failureLine.MatchString(line) })
	return strings.Join(append(names, lines[end:]...), "\n")
}

// tailBytes is longer than any useful line of a report.
const tailBytes = 4096

// lastLine returns the last line of a log that is not blank.
func lastLine(log string) string {
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // only read
	if info, err := f.Stat(); err == nil && info.Size() > tailBytes {
		_, _ = f.Seek(-tailBytes, io.SeekEnd)
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
