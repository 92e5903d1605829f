// Command house measures the code and the pages of the last commit, beside those of an older one if it is named.
//
//	cd test && go run ./cmd/house [COMMIT]
//
// Lines are those that are not blank. Production code is what a program outside of test/ imports, without its test files; all
// else is test code. Functions and methods are those of production code.
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
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, older []string) error {
	var measured [][]table
	for _, commit := range append([]string{"HEAD"}, older...) {
		packages, words, err := read(ctx, commit)
		if err != nil {
			return fmt.Errorf("cannot measure %s: %w", commit, err)
		}
		measured = append(measured, tables(commit, packages, words))
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for i := range measured[0] {
		var beside []table
		for _, commit := range measured {
			beside = append(beside, commit[i])
		}
		print(out, beside)
	}
	return out.Flush()
}

// A table has the figures of one kind for a commit.
type table struct {
	kind string
	head []string
	rows map[string][]string
}

// print writes the tables of several commits side by side.
func print(out *tabwriter.Writer, commits []table) {
	names, head := map[string][]string{}, []string{commits[0].kind}
	for _, commit := range commits {
		maps.Copy(names, commit.rows)
		head = append(head, commit.head...)
	}
	_, _ = fmt.Fprintln(out, strings.Join(head, "\t"))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		cells := []string{name}
		for _, commit := range commits {
			cells = append(cells, append(commit.rows[name], make([]string, len(commit.head))...)[:len(commit.head)]...)
		}
		_, _ = fmt.Fprintln(out, strings.Join(cells, "\t"))
	}
	_, _ = fmt.Fprintln(out)
}

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
		switch folder := path.Dir(file.Name); path.Ext(file.Name) {
		case ".md":
			words[file.Name] = len(bytes.Fields(text))
		case ".go":
			packages[folder] = cmp.Or(packages[folder], &pkg{})
			if err := packages[folder].add(file.Name, text); err != nil {
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
func tables(commit string, packages map[string]*pkg, words map[string]int) []table {
	code := table{"package", []string{commit + ": production", "test", "files", "functions: median/p90/max"}, map[string][]string{}}
	methods := table{"method", []string{commit + ": types that define it"}, map[string][]string{}}
	pages := table{"page", []string{commit + ": words"}, map[string][]string{}}
	all, types, total := pkg{production: true}, map[string]int{}, 0
	for folder, p := range packages {
		code.rows[folder] = p.cells()
		all.lines, all.testLines, all.files = all.lines+p.lines, all.testLines+p.testLines, all.files+p.files
		all.functions = append(all.functions, p.functions...)
		for _, method := range p.methods {
			types[method]++
		}
	}
	largest := slices.MaxFunc(slices.Sorted(maps.Keys(packages)), func(a, b string) int { return packages[a].files - packages[b].files })
	code.rows["~ all"], code.rows["~ largest: "+largest] = all.cells(), packages[largest].cells() // sorted behind the others
	common := slices.SortedFunc(maps.Keys(types), func(a, b string) int { return cmp.Or(types[b]-types[a], cmp.Compare(a, b)) })
	for _, name := range common[:min(15, len(common))] {
		methods.rows[name] = []string{fmt.Sprint(types[name])}
	}
	for page, count := range words {
		pages.rows[page] = []string{fmt.Sprint(count)}
		total += count
	}
	pages.rows["~ all"] = []string{fmt.Sprint(total)}
	return []table{code, methods, pages}
}

func (p *pkg) cells() []string {
	if !p.production {
		return []string{"", fmt.Sprint(p.testLines)}
	}
	sorted := slices.Sorted(slices.Values(p.functions))
	at := func(percent int) int { return sorted[(len(sorted)-1)*percent/100] }
	lengths := fmt.Sprintf("%d: %d/%d/%d", len(sorted), at(50), at(90), at(100))
	return []string{fmt.Sprint(p.lines), fmt.Sprint(p.testLines), fmt.Sprint(p.files), lengths}
}
