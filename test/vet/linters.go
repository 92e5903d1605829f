package main

import (
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/gostaticanalysis/nilerr"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/kkHAIKE/contextcheck"
	"github.com/nishanths/exhaustive"
	"github.com/sonatard/noctx"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/suite/vet"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// analyzers returns the analyzers of go vet, and a short list of linters: each has found a real bug in code of this kind.
func analyzers() []*analysis.Analyzer {
	// A default case makes a switch exhaustive.
	if err := exhaustive.Analyzer.Flags.Set("d", "true"); err != nil {
		panic(err)
	}
	all := slices.Clone(vet.Suite)
	for _, a := range append(staticcheckSuite(),
		contextcheck.NewAnalyzer(contextcheck.Configuration{}),
		errcheck.Analyzer,
		errorlint.NewAnalyzer(),
		exhaustive.Analyzer,
		ineffassign.Analyzer,
		nilerr.Analyzer,
		noctx.Analyzer,
		unusedCode(),
	) {
		all = append(all, withSuppression(a))
	}
	return all
}

// styleRules are the rules of staticcheck's style that are matters of taste.
var styleRules = []string{"ST1000", "ST1003", "ST1016", "ST1020", "ST1021", "ST1022"}

// staticcheckSuite returns staticcheck's checks, each with the name under which a comment suppresses them all.
func staticcheckSuite() (all []*analysis.Analyzer) {
	for _, a := range slices.Concat(staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers) {
		if !slices.Contains(styleRules, a.Analyzer.Name) {
			all = append(all, a.Analyzer)
		}
	}
	return all
}

// unusedCode reports what nothing in its package uses. A package with tests is analyzed twice, with and without them: only what
// neither uses is unused.
func unusedCode() *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "unused", Doc: "report code that nothing uses", Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
		Run: func(pass *analysis.Pass) (any, error) {
			if hasTestsElsewhere(pass) {
				return nil, nil
			}
			found, _ := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
			for _, object := range found.Unused {
				if file := fileOf(pass, object.Position.Filename); file != nil {
					pass.Reportf(file.LineStart(object.Position.Line), "%s %s is unused", object.Kind, object.Name)
				}
			}
			return nil, nil
		},
	}
}

// hasTestsElsewhere reports whether the package has tests and this pass is not the one with them.
func hasTestsElsewhere(pass *analysis.Pass) bool {
	for _, f := range pass.Files {
		if strings.HasSuffix(pass.Fset.Position(f.Package).Filename, "_test.go") {
			return false
		}
	}
	dir := filepath.Dir(pass.Fset.Position(pass.Files[0].Package).Filename)
	tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go")) // the pattern is good
	return len(tests) > 0
}

func fileOf(pass *analysis.Pass, name string) *token.File {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.Package); file.Name() == name {
			return file
		}
	}
	return nil
}

// suppression matches a comment that suppresses analyzers.
var suppression = regexp.MustCompile(`^//nolint:([a-z,]+)`)

// withSuppression returns the analyzer without what comments in the code suppress.
func withSuppression(a *analysis.Analyzer) *analysis.Analyzer {
	quiet := *a
	name := a.Name
	if strings.HasPrefix(name, "SA") || strings.HasPrefix(name, "S1") || strings.HasPrefix(name, "ST") {
		name = "staticcheck"
	}
	quiet.Run = func(pass *analysis.Pass) (any, error) {
		lines, report := suppressedLines(pass, name), pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if at := pass.Fset.Position(d.Pos); !lines[line{at.Filename, at.Line}] {
				report(d)
			}
		}
		return a.Run(pass)
	}
	return &quiet
}

// line is a line of a file.
type line struct {
	file string
	n    int
}

// suppressedLines returns the lines with a comment that names the analyzer, and the lines after these.
func suppressedLines(pass *analysis.Pass, analyzer string) map[line]bool {
	lines := map[line]bool{}
	for _, f := range pass.Files {
		for _, group := range f.Comments {
			for _, comment := range group.List {
				names := suppression.FindStringSubmatch(comment.Text)
				if names != nil && slices.Contains(strings.Split(names[1], ","), analyzer) {
					at := pass.Fset.Position(comment.Pos())
					lines[line{at.Filename, at.Line}], lines[line{at.Filename, at.Line + 1}] = true, true
				}
			}
		}
	}
	return lines
}
