// Command prose checks pages, comments and messages with Vale and the rules of docs/.vale.
//
//	cd test && go run ./cmd/prose --vale PROGRAM             prints errors, and fails if there are any
//	cd test && go run ./cmd/prose --vale PROGRAM --count     counts alerts by rule and folder
//	cd test && go run ./cmd/prose --vale PROGRAM --all PATH  prints all alerts below PATH
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nodelvm/nodelvm/test/prose"
)

// checked are the files and folders that Vale checks.
var checked = append([]string{"README.md", "CONTRIBUTING.md", "docs", "api", "deploy", "test", prose.Folder}, prose.SourceFolders...)

func main() {
	vale := flag.String("vale", "vale", "the program")
	count := flag.Bool("count", false, "count what is found, by rule and folder")
	all := flag.String("all", "", "print warnings and suggestions too, of the files below this path")
	flag.Parse()
	errors, err := run(context.Background(), *vale, *count, *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if errors > 0 {
		os.Exit(1)
	}
}

// run returns the number of errors that Vale reports.
func run(ctx context.Context, vale string, count bool, all string) (errors int, err error) {
	if err := prose.Collect(".."); err != nil {
		return 0, err
	}
	alerts, err := prose.Check(ctx, "..", vale, checked)
	if err != nil {
		return 0, err
	}
	for _, alert := range alerts {
		isError := alert.Severity == "error"
		if isError {
			errors++
		}
		if all != "" && strings.HasPrefix(alert.Path, all) || all == "" && isError {
			fmt.Println(alert)
		}
	}
	if count {
		printCounts(alerts)
	}
	return errors, nil
}

// printCounts prints a table with a row for each folder and a column for each rule.
func printCounts(alerts []prose.Alert) {
	counts := map[string]map[string]int{}
	rules := map[string]bool{}
	for _, alert := range alerts {
		folder := folderOf(alert.Path)
		if counts[folder] == nil {
			counts[folder] = map[string]int{}
		}
		rule := strings.TrimPrefix(alert.Check, "Nodelvm.")
		counts[folder][rule]++
		counts[folder][alert.Severity+"s"]++
		rules[rule], rules[alert.Severity+"s"] = true, true
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	columns := slices.Sorted(maps.Keys(rules))
	_, _ = fmt.Fprintln(table, "folder\t"+strings.Join(columns, "\t"))
	for _, folder := range slices.Sorted(maps.Keys(counts)) {
		row := folder
		for _, rule := range columns {
			row += fmt.Sprintf("\t%d", counts[folder][rule])
		}
		_, _ = fmt.Fprintln(table, row)
	}
	_ = table.Flush()
}

// folderOf returns the file for a Markdown page, and the folder for any other file.
func folderOf(file string) string {
	if strings.HasSuffix(file, ".md") {
		return file
	}
	return path.Dir(file)
}
