package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// result is the result of a part.
type result struct {
	On      string   `json:"on"` // a version of Kubernetes, or the Debian suites of the node's kernel and of the node
	Part    string   `json:"part"`
	Commit  string   `json:"commit"`
	Date    string   `json:"date"`
	Minutes int      `json:"minutes"`
	Passed  int      `json:"passed"`
	Failed  []string `json:"failed,omitempty"`
}

func (r result) isGood() bool { return r.Passed > 0 && len(r.Failed) == 0 }

type results []result

func (all results) find(on, part string) *result {
	for i := range all {
		if all[i].On == on && all[i].Part == part {
			return &all[i]
		}
	}
	return nil
}

// put adds a result. It replaces an older one of the same part on the same version or nodes.
func (all *results) put(r result) {
	*all = slices.DeleteFunc(*all, func(old result) bool { return old.On == r.On && old.Part == r.Part })
	*all = append(*all, r)
	slices.SortFunc(*all, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.On, b.On), cmp.Compare(a.Part, b.Part))
	})
}

func readResults(path string) (results, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all results
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

func (all results) write(path string) error {
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// readEvents counts the tests in all files that match a pattern, which have go test's events. It does not count subtests.
func readEvents(pattern string) (r result, err error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return r, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return r, err
		}
		if err := r.count(text); err != nil {
			return r, fmt.Errorf("%s: %w", file, err)
		}
	}
	return r, nil
}

func (r *result) count(text []byte) error {
	for line := range bytes.Lines(text) {
		var event struct{ Action, Test string }
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("cannot read an event of go test: %w", err)
		}
		switch {
		case event.Test == "" || strings.Contains(event.Test, "/"):
		case event.Action == "pass":
			r.Passed++
		case event.Action == "fail":
			r.Failed = append(r.Failed, event.Test)
		}
	}
	return nil
}

// matrix lists the versions and nodes that the tests run on.
type matrix struct {
	kubernetes []string // oldest first; all other tests use the last one
	nodes      []string // Debian suites of the kernel and of the node, "trixie/bookworm"; all other tests use the last ones
}

// readMatrix reads versions.env.
func readMatrix(path string) (m matrix, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	v := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v[key] = value
	}
	for _, key := range []string{"KUBERNETES_VERSION", "KUBERNETES_MATRIX", "DEBIAN_KERNEL_SUITE", "DEBIAN_NODE_SUITE", "NODE_MATRIX"} {
		if v[key] == "" {
			return m, fmt.Errorf("%s lacks %s", path, key)
		}
	}
	m.kubernetes = append(strings.Split(v["KUBERNETES_MATRIX"], ","), v["KUBERNETES_VERSION"])
	m.nodes = append(strings.Split(v["NODE_MATRIX"], ","), v["DEBIAN_KERNEL_SUITE"]+"/"+v["DEBIAN_NODE_SUITE"])
	return m, nil
}
