package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
)

const module = "github.com/nodelvm/nodelvm/"

// A pkg is the Go files of a folder.
type pkg struct {
	files, lines, testLines int
	functions               []int // the lines of each
	methods, imports        []string
	program, production     bool
}

// read parses the Go files of a commit, and counts the words of its pages.
func read(ctx context.Context, commit string) (packages map[string]*pkg, words map[string]int, err error) {
	archive, err := exec.CommandContext(ctx, "git", "-C", "..", "archive", "--format=tar", commit).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("git archive: %w", err)
	}
	packages, words = map[string]*pkg{}, map[string]int{}
	for reader := tar.NewReader(bytes.NewReader(archive)); ; {
		file, err := reader.Next()
		if errors.Is(err, io.EOF) {
			markProduction(packages)
			return packages, words, nil
		}
		if err != nil {
			return nil, nil, err
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			return nil, nil, err
		}
		switch path.Ext(file.Name) {
		case ".md":
			words[file.Name] = len(bytes.Fields(text))
		case ".go":
			p := cmp.Or(packages[path.Dir(file.Name)], &pkg{})
			packages[path.Dir(file.Name)] = p
			if err := p.add(file.Name, text); err != nil {
				return nil, nil, err
			}
		}
	}
}

// add counts a file of the package.
func (p *pkg) add(name string, text []byte) error {
	lines := 0
	for line := range bytes.Lines(text) {
		lines += min(1, len(bytes.TrimSpace(line)))
	}
	if strings.HasSuffix(name, "_test.go") {
		p.testLines += lines
		return nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	p.files++
	p.lines += lines
	p.program = p.program || file.Name.Name == "main" && !strings.HasPrefix(name, "test/")
	for _, imported := range file.Imports {
		p.imports = append(p.imports, strings.TrimPrefix(strings.Trim(imported.Path.Value, `"`), module))
	}
	for _, declaration := range file.Decls {
		if function, is := declaration.(*ast.FuncDecl); is {
			p.functions = append(p.functions, set.Position(function.End()).Line-set.Position(function.Pos()).Line+1)
			if function.Recv != nil {
				p.methods = append(p.methods, function.Name.Name)
			}
		}
	}
	return nil
}

// markProduction makes all of a package test code, unless a program imports it.
func markProduction(packages map[string]*pkg) {
	var reach func(folder string)
	reach = func(folder string) {
		if p := packages[folder]; p != nil && !p.production {
			p.production = true
			for _, imported := range p.imports {
				reach(imported)
			}
		}
	}
	for folder, p := range packages {
		if p.program {
			reach(folder)
		}
	}
	for _, p := range packages {
		if !p.production {
			*p = pkg{testLines: p.lines + p.testLines}
		}
	}
}

// tables are the figures of a commit.
func tables(packages map[string]*pkg, words map[string]int) []table {
	var all pkg
	code := table{[]string{"package", "production", "test", "files", "functions: median/p90/max"}, map[string][]string{}}
	types := map[string]int{}
	for folder, p := range packages {
		code.rows[folder] = p.cells()
		all.lines += p.lines
		all.testLines += p.testLines
		all.files += p.files
		all.functions = append(all.functions, p.functions...)
		for _, method := range p.methods {
			types[method]++
		}
	}
	code.rows["~ all"] = all.cells() // sorted behind the others
	largest := slices.MaxFunc(slices.Sorted(maps.Keys(packages)), func(a, b string) int { return packages[a].files - packages[b].files })
	code.rows["~ largest: "+largest] = packages[largest].cells()
	common := slices.SortedFunc(maps.Keys(types), func(a, b string) int { return cmp.Or(types[b]-types[a], cmp.Compare(a, b)) })
	methods := table{[]string{"method", "types that define it"}, map[string][]string{}}
	for _, name := range common[:min(15, len(common))] {
		methods.rows[name] = []string{fmt.Sprint(types[name])}
	}
	pages, total := table{[]string{"page", "words"}, map[string][]string{}}, 0
	for page, count := range words {
		pages.rows[page] = []string{fmt.Sprint(count)}
		total += count
	}
	pages.rows["~ all"] = []string{fmt.Sprint(total)}
	return []table{code, methods, pages}
}

func (p *pkg) cells() []string {
	if len(p.functions) == 0 {
		return []string{"", fmt.Sprint(p.testLines)}
	}
	sorted := slices.Sorted(slices.Values(p.functions))
	last := len(sorted) - 1
	lengths := fmt.Sprintf("%d: %d/%d/%d", len(sorted), sorted[last/2], sorted[last*9/10], sorted[last])
	return []string{fmt.Sprint(p.lines), fmt.Sprint(p.testLines), fmt.Sprint(p.files), lengths}
}
