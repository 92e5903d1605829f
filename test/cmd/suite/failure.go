package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The parts of an explanation, in lines: together less than 40.
const (
	logLines    = 12
	outputLines = 20
)

// explanation says why the part failed: the end of its log, what its first failed test printed, and how to repeat that test.
func (p *part) explanation() string {
	var b strings.Builder
	for _, line := range lastLines(readText(p.log), logLines) {
		b.WriteString("| " + line + "\n")
	}
	b.WriteString("The whole log: " + p.log + "\n")
	f := p.firstFailure()
	if f == nil {
		b.WriteString("To repeat the part: test/part.sh " + p.name + "\n")
		return b.String()
	}
	b.WriteString("First failure: " + f.name + " of " + f.pkg + "\n")
	for _, line := range f.output() {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("To repeat it: " + f.repeat() + "\n")
	return b.String()
}

// firstFailure returns the failure of all files of events that ended first, or nil. A job in a node has its own file of events, and
// the test that runs it fails after it.
func (p *part) firstFailure() (first *failure) {
	files, _ := filepath.Glob(p.results + "-*.json") // the pattern is good
	for _, file := range files {
		if f := firstFailure(file); f != nil && (first == nil || f.ended.Before(first.ended)) {
			first = f
		}
	}
	return first
}

// failure is a failed test without failed subtests, and what it printed.
type failure struct {
	file      string // of its events
	pkg, name string
	ended     time.Time
	text      strings.Builder
}

// firstFailure returns the failed test of a file of events that ended first; subtests end before their parents. A package that
// failed without a test, as one that does not compile, has the name "the package".
func firstFailure(file string) *failure {
	texts := map[[2]string]*failure{}
	var first *failure
	err := readEvents(file, func(e event) {
		at := [2]string{e.Package, e.Test}
		if texts[at] == nil {
			texts[at] = &failure{file: file, pkg: e.Package, name: e.Test}
		}
		texts[at].text.WriteString(e.Output)
		if first == nil && e.Action == "fail" {
			first = texts[at]
			first.ended = e.Time
			if first.name == "" {
				first.name = "the package"
			}
		}
	})
	if first == nil || err != nil && first.name == "" {
		return nil
	}
	return first
}

// assertion is a line that testing prints for t.Error and t.Fatal, or the start of a panic.
var assertion = regexp.MustCompile(`^\s+\w+\.go:\d+: |^panic: |^fatal error: `)

// output returns the lines from the first assertion on; without one, the last lines.
func (f *failure) output() []string {
	lines := strings.Split(strings.TrimRight(f.text.String(), "\n"), "\n")
	if at := slices.IndexFunc(lines, assertion.MatchString); at >= 0 {
		return lines[at:min(at+outputLines, len(lines))]
	}
	return lines[max(0, len(lines)-outputLines):]
}

// repeat completes the command in the file beside the events, in which RUN and PACKAGE are replaced.
func (f *failure) repeat() string {
	command := strings.TrimSpace(readText(strings.TrimSuffix(f.file, ".json") + ".repeat"))
	run := "."
	if f.name != "the package" {
		steps := strings.Split(f.name, "/")
		for i, step := range steps {
			steps[i] = "^" + regexp.QuoteMeta(step) + "$"
		}
		run = strings.Join(steps, "/")
	}
	return strings.NewReplacer("NODELVM_TEST_RUN", "NODELVM_TEST_RUN", "RUN", "'"+run+"'", "PACKAGE", f.pkg).Replace(command)
}

func lastLines(text string, n int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}

// readText returns the text of a file, or why it cannot be read.
func readText(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
