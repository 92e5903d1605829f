// Command house measures the code and the pages of the last commit, beside those of an older one if it is named.
//
//	cd test && go run ./cmd/house [COMMIT]
//
// Lines are those that are not blank. Production code is what a program outside of test/ imports, without its test files; all
// else is test code. Functions and methods are those of production code.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
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
	commits := append([]string{"HEAD"}, older...)
	for _, commit := range commits {
		packages, words, err := read(ctx, commit)
		if err != nil {
			return fmt.Errorf("cannot measure %s: %w", commit, err)
		}
		measured = append(measured, tables(packages, words))
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for i := range measured[0] {
		var same []table
		for _, commit := range measured {
			same = append(same, commit[i])
		}
		print(out, same, commits)
	}
	return out.Flush()
}

// A table has figures of one kind.
type table struct {
	head []string            // the columns, the first of them for the names of the rows
	rows map[string][]string // the other columns
}

// print writes a table of several commits side by side.
func print(out *tabwriter.Writer, commits []table, titles []string) {
	names := map[string]bool{}
	head := commits[0].head[:1]
	for i, commit := range commits {
		for name := range commit.rows {
			names[name] = true
		}
		head = append(head[:len(head):len(head)], titles[i]+": "+commit.head[1])
		head = append(head, commit.head[2:]...)
	}
	line := func(cells []string) { _, _ = fmt.Fprintln(out, strings.Join(cells, "\t")) }
	line(head)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		cells := []string{name}
		for _, commit := range commits {
			cells = append(cells, append(commit.rows[name], make([]string, len(commit.head))...)[:len(commit.head)-1]...)
		}
		line(cells)
	}
	line(nil)
}
