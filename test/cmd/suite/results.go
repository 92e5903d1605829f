package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

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
