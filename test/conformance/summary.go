package conformance

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

// Summary has all specs with the results so far.
type Summary struct {
	Specs   []Spec // all specs of the suite, claimed or not
	results results
}

// counts are numbers of claimed specs.
type counts struct{ claimed, passed, failed, skipped int }

func (c counts) String() string {
	return fmt.Sprintf("%d of %d passed, %d failed, %d skipped by the suite, %d not run",
		c.passed, c.claimed, c.failed, c.skipped, c.claimed-c.passed-c.failed-c.skipped)
}

func (r results) count(claimed []Spec) counts {
	c := counts{claimed: len(claimed)}
	for _, s := range claimed {
		report, found := r[s]
		switch {
		case !found:
		case report.State.Is(types.SpecStatePassed):
			c.passed++
		case report.State.Is(types.SpecStateSkipped):
			c.skipped++
		default:
			c.failed++
		}
	}
	return c
}

// Claimed returns the specs that are not excluded.
func (s Summary) Claimed() []Spec {
	var claimed []Spec
	for _, spec := range s.Specs {
		if exclusionOf(spec) < 0 {
			claimed = append(claimed, spec)
		}
	}
	return claimed
}

// Numbers says how many specs there are, as docs/development/conformance.md does: all, and those that are claimed of each class.
func (s Summary) Numbers() string {
	of := map[string]int{}
	for _, spec := range s.Claimed() {
		of[spec.Class]++
	}
	claims := make([]string, 0, len(of))
	for _, class := range definitionNames() {
		claims = append(claims, fmt.Sprintf("%d %s", of[class], class))
	}
	return fmt.Sprintf("%d specs, of which nodelvm claims %d: %s", len(s.Specs), len(s.Claimed()), strings.Join(claims, ", "))
}

// NotPassed returns a paragraph with the reason for each of specs that did not pass.
func (s Summary) NotPassed(specs []Spec) []string {
	var all []string
	for _, spec := range specs {
		report, found := s.results[spec]
		switch {
		case !found:
			all = append(all, spec.Class+": "+spec.Text+": not run")
		case !report.State.Is(types.SpecStatePassed):
			all = append(all, fmt.Sprintf("%s: %s: %s: %s", spec.Class, spec.Text, report.State, report.Failure.Message))
		}
	}
	return all
}

// Table renders the results of the claimed specs in Markdown, with a row for each part of the suite.
func (s Summary) Table() string {
	type row struct{ class, group string }
	var order []row
	specs := map[row][]Spec{}
	for _, spec := range s.Claimed() {
		r := row{spec.Class, spec.Group()}
		if specs[r] == nil {
			order = append(order, r)
		}
		specs[r] = append(specs[r], spec)
	}
	var b strings.Builder
	b.WriteString("| class | part | claimed | passed | failed | skipped by the suite | not run |\n|---|---|---|---|---|---|---|\n")
	line := func(class, group string, c counts) {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d |\n", class, group, c.claimed, c.passed, c.failed, c.skipped, c.claimed-c.passed-c.failed-c.skipped)
	}
	for _, r := range order {
		line(r.class, r.group, s.results.count(specs[r]))
	}
	line("all", "all", s.results.count(s.Claimed()))
	return b.String()
}

// ExclusionTable renders the Markdown table of docs/development/conformance.md: how many specs each exclusion matches.
func ExclusionTable(specs []Spec) string {
	numbers := make([]map[string]int, len(Exclusions))
	for i := range numbers {
		numbers[i] = map[string]int{}
	}
	for _, spec := range specs {
		if i := exclusionOf(spec); i >= 0 {
			numbers[i][spec.Class]++
		}
	}
	var b strings.Builder
	b.WriteString("| specs of | " + strings.Join(Classes, " | ") + " | reason |\n|" + strings.Repeat("---|", len(Classes)+2) + "\n")
	for i, e := range Exclusions {
		fmt.Fprintf(&b, "| %s | ", e.Specs)
		for _, class := range Classes {
			fmt.Fprintf(&b, "%d | ", numbers[i][class])
		}
		fmt.Fprintf(&b, "%s |\n", e.Reason)
	}
	return b.String()
}
