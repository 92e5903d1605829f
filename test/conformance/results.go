package conformance

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// results are the reports of the specs that ran. A file stores them, so that a later run does not repeat specs that passed.
type results map[Spec]types.SpecReport

// kept is one line of the file.
type kept struct {
	Class  string
	Report types.SpecReport
}

func resultsFile(dir string) string { return filepath.Join(dir, "results.json") }

func loadResults(dir string) (results, error) {
	text, err := os.ReadFile(resultsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return results{}, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []kept
	if err := json.Unmarshal(text, &lines); err != nil {
		return nil, err
	}
	all := results{}
	for _, l := range lines {
		all[Spec{l.Class, l.Report.FullText()}] = l.Report
	}
	return all, nil
}

// save replaces the file atomically.
func (r results) save(dir string) error {
	lines := make([]kept, 0, len(r))
	for spec, report := range r {
		lines = append(lines, kept{spec.Class, report})
	}
	slices.SortFunc(lines, func(a, b kept) int {
		return strings.Compare(a.Class+a.Report.FullText(), b.Class+b.Report.FullText())
	})
	text, err := json.Marshal(lines)
	if err != nil {
		return err
	}
	unfinished := resultsFile(dir) + ".unfinished"
	if err := os.WriteFile(unfinished, text, 0o644); err != nil {
		return err
	}
	return os.Rename(unfinished, resultsFile(dir))
}

// take adds the results of the wanted specs from a report. A report has every spec of the suite, and those that did not run as
// skipped.
func (r results) take(wanted []Spec, report types.Report) {
	for _, spec := range report.SpecReports {
		at := slices.IndexFunc(wanted, func(s Spec) bool { return s.Text == spec.FullText() })
		if at < 0 || spec.State.Is(types.SpecStateSkipped) && spec.Failure.IsZero() {
			continue
		}
		if spec.State.Is(types.SpecStatePassed) {
			spec.CapturedGinkgoWriterOutput, spec.CapturedStdOutErr = "", "" // megabytes without a use
			spec.SpecEvents, spec.ReportEntries = nil, nil
		}
		r[wanted[at]] = spec
	}
}

func (r results) passed(s Spec) bool { return r[s].State.Is(types.SpecStatePassed) }
