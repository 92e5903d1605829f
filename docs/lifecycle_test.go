package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVolumeLifecycle: each function in the table is in its file, the path is short enough to read, and no function of its files
// has the name of one in another of them.
func TestVolumeLifecycle(t *testing.T) {
	const page, mostFiles = "development/volume-lifecycle.md", 12
	rows := regexp.MustCompile("(?m)^\\| `([^`]+\\.go)` \\| (`[^|]+`) \\|").FindAllStringSubmatch(prose(t, page), -1)
	if len(rows) < 5 || len(rows) > mostFiles {
		t.Errorf("docs/%s lists %d files, want at most %d", page, len(rows), mostFiles)
	}
	declared := map[string]string{}
	for _, row := range rows {
		path := row[1]
		functions := functionsIn(t, filepath.Join(root, path))
		for _, name := range functions {
			if other := declared[name]; other != "" && other != path {
				t.Errorf("%s is a function in %s and in %s, which one reads together: give one of them another name", name, other, path)
			}
			declared[name] = path
		}
		for name := range strings.SplitSeq(row[2], ", ") {
			name = strings.Trim(name, "`")
			if !slices.Contains(functions, name) {
				t.Errorf("docs/%s: %s declares no function %s", page, path, name)
			}
		}
	}
}

func functionsIn(t *testing.T, path string) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	must(t, err)
	for _, decl := range file.Decls {
		if function, ok := decl.(*ast.FuncDecl); ok {
			names = append(names, function.Name.Name)
		}
	}
	return names
}

// TestConditionsHaveAlerts: each condition has an alert of its name, or is one that needs no action at once.
func TestConditionsHaveAlerts(t *testing.T) {
	const rules = "deploy/chart/nodelvm/files/alerts.yaml"
	quiet := []string{"VolumeRebuilding"}
	alerts, count := prose(t, filepath.Join(root, rules)), 0
	for _, file := range sources(t) {
		for _, condition := range constants(file, "Condition") {
			count++
			if !slices.Contains(quiet, condition) && !strings.Contains(alerts, "- alert: Nodelvm"+condition+"\n") {
				t.Errorf("%s has no alert Nodelvm%s: add one with a runbook, or name the condition in this test", rules, condition)
			}
		}
	}
	if count < 9 {
		t.Errorf("only %d conditions were found", count)
	}
}
