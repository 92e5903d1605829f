package conformance

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/nodelvm/nodelvm/test/lab"
)

//go:embed definitions
var definitions embed.FS

// Classes are the definitions for which the whole suite runs.
var Classes = []string{"linear", "thin", "encrypted"}

// groups is the definition for which only the specs of group snapshots run. All its volumes are on GroupsNode.
const (
	groups     = "groups"
	GroupsNode = "node-3"
)

// definitionNames returns the names of all definitions, in the order in which the suite runs for them.
func definitionNames() []string { return append(slices.Clone(Classes), groups) }

// focusOf returns the regular expression that selects the specs of a definition.
func focusOf(class string) string {
	if class == groups {
		return "External Storage.*(?i:volumegroupsnapshot)"
	}
	return "External Storage"
}

// Spec is one test of the suite, for one class.
type Spec struct {
	Class string
	Text  string // ginkgo's full text, unique in its class
}

// group matches the beginning of a spec's text, up to its part of the suite.
var group = regexp.MustCompile(`^External Storage \[Driver: [^]]*\] \[Testpattern: .*?\](?: ?\[[^]]*\])* ([\w-]+)`)

// Group returns the part of the suite that s belongs to: "provisioning", "subPath", ...
func (s Spec) Group() string {
	if m := group.FindStringSubmatch(s.Text); m != nil {
		return m[1]
	}
	return "other"
}

// suite is the compiled suite, and the folder of the definitions that it reads.
type suite struct {
	lab         *lab.Lab
	binary      string
	kubectl     string
	definitions string
}

// newSuite returns a suite, and writes its definitions to a folder below dir.
func newSuite(l *lab.Lab, binary, kubectl, dir string) (suite, error) {
	s := suite{l, binary, kubectl, filepath.Join(dir, "definitions")}
	if err := os.RemoveAll(s.definitions); err != nil {
		return s, err
	}
	sub, err := fs.Sub(definitions, "definitions")
	if err != nil {
		return s, err
	}
	return s, os.CopyFS(s.definitions, sub)
}

// run runs e2e.test for one class with additional flags, and returns ginkgo's report. The output goes to the file log. Failed specs
// are in the report, and are no error.
func (s suite) run(ctx context.Context, class, log string, flags ...string) (types.Report, error) {
	var report types.Report
	out, err := os.Create(log)
	if err != nil {
		return report, err
	}
	defer func() { _ = out.Close() }()
	file := log + ".json"
	defer func() { _ = os.Remove(file) }()
	argv := append([]string{
		s.binary, "--storage.testdriver=" + filepath.Join(s.definitions, class+".yaml"), "--repo-root=" + s.definitions,
		"--provider=skeleton", "--kubectl-path=" + s.kubectl,
		"--ginkgo.json-report=" + file, "--ginkgo.no-color", "--ginkgo.v",
	}, flags...)
	failed := s.lab.Run(ctx, nil, out, out, argv...)
	text, err := os.ReadFile(file)
	if err != nil {
		return report, fmt.Errorf("the suite wrote no report: %w; see %s", errors.Join(failed, err), log)
	}
	var all []types.Report
	if err := json.Unmarshal(text, &all); err != nil {
		return report, fmt.Errorf("the suite's report: %w; see %s", err, log)
	}
	for _, r := range all { // the suite writes one
		report = r
	}
	return report, nil
}

// list returns all specs of the suite for a class. It runs none.
func (s suite) list(ctx context.Context, class, log string) ([]Spec, error) {
	report, err := s.run(ctx, class, log, "--ginkgo.dry-run", "--ginkgo.focus="+focusOf(class))
	if err != nil {
		return nil, err
	}
	var specs []Spec
	for _, r := range report.SpecReports {
		if r.LeafNodeType.Is(types.NodeTypeIt) && !r.State.Is(types.SpecStateSkipped|types.SpecStatePending) {
			specs = append(specs, Spec{class, r.FullText()})
		}
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("the suite has no spec for the class %s; see %s", class, log)
	}
	return specs, nil
}
