package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

// table is rows of cells under a header. It looks as kubectl's tables do, and never cuts a cell.
type table struct {
	header []string
	rows   [][]string
	none   string // printed instead of a table without rows
}

// add adds a row, in which "-" stands for an empty cell.
func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = orDash(printable.Text(cell))
	}
	t.rows = append(t.rows, row)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// write prints the table with kubectl's distances between columns.
func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(w, t.none)
		return err
	}
	out := tabwriter.NewWriter(w, 6, 4, 3, ' ', 0)
	for _, row := range append([][]string{t.header}, t.rows...) {
		if _, err := fmt.Fprintln(out, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return out.Flush()
}

// percent returns a part of a whole, rounded down; "": there is no whole.
func percent[N ~int64](part, whole N) string {
	if whole <= 0 {
		return ""
	}
	return fmt.Sprintf("%d%%", int64(100*(float64(part)/float64(whole))))
}
