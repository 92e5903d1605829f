package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

var formats = []string{"json", "yaml", "wide", "name"}

// listObjects are the commands whose rows are about objects of the API, for -o name.
var listObjects = []string{"nodes", "volumes", "snapshots", "moves"}

// settings are the flags of all commands.
type settings struct {
	format      string
	nodeTimeout time.Duration
}

func (s *settings) bind(root *cobra.Command) {
	root.PersistentFlags().StringVarP(&s.format, "output", "o", "", "json, yaml, wide for more columns, or name (default: a table)")
	root.PersistentFlags().DurationVar(&s.nodeTimeout, "node-timeout", 10*time.Second, "time to wait for a node's answer")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)) // it fails only for an unknown flag
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case s.format != "" && !slices.Contains(formats, s.format):
			return fmt.Errorf("--output is %q; give one of %s", s.format, strings.Join(formats, ", "))
		case s.format == "name" && !slices.Contains(listObjects, cmd.Name()):
			return fmt.Errorf("%s lists no objects of the API: --output name is for %s", cmd.Name(), strings.Join(listObjects, ", "))
		}
		return nil
	}
}

func (s *settings) wide() bool { return s.format == "wide" }

// print writes data as JSON or YAML, and otherwise the text.
func (s *settings) print(w io.Writer, data any, text func(w io.Writer) error) error {
	switch s.format {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(data)
	case "yaml":
		out, err := yaml.Marshal(data)
		if err != nil {
			return err
		}
		_, err = w.Write(out)
		return err
	}
	return text(w)
}

// printRows prints a subcommand's rows, as a table unless the flags say otherwise. Rows of listObjects have a method object: its name can
// begin with a namespace, which -o name leaves out as kubectl does, and is "" for a row without an object.
func printRows[R any](s *settings, w io.Writer, rows []R, t *table) error {
	if s.format != "name" {
		return s.print(w, rows, t.write)
	}
	last := ""
	for _, row := range rows {
		kind, name := any(row).(interface{ object() (kind, name string) }).object()
		if name == "" || name == last {
			continue
		}
		if _, err := fmt.Fprintln(w, printable.Text(kind+"/"+path.Base(name))); err != nil {
			return err
		}
		last = name
	}
	return nil
}

// columns returns the width of a terminal; 0: w is a file or a pipe.
func columns(w io.Writer) int {
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

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
		row[i] = cmp.Or(printable.Text(cell), "-")
	}
	t.rows = append(t.rows, row)
}

// addCells adds a row with these cells, by their columns; those that the table lacks do not count.
func (t *table) addCells(cells map[string]string) {
	var row []string
	for _, column := range t.header {
		row = append(row, cells[column])
	}
	t.add(row...)
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
