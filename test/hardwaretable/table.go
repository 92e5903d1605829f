// Package hardwaretable keeps what the tests on emulated hardware have shown, as a table of docs/compatibility.md. A test in a node prints a row,
// the run compares the rows with the recorded ones, and the page has these.
package hardwaretable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// File has the recorded rows; it is relative to the folder test.
const File = "hardwaretable/rows.json"

// Row is what one test has shown.
type Row struct {
	Test      string // that printed it
	Case      string
	Pod       string // what it sees
	Capacity  string // of the volume's class
	Condition string
	Message   string
}

// mark begins a row in the output of a test in a node.
const mark = "hardware case: "

// Read returns the recorded rows; none if there is no file.
func Read(file string) (rows []Row, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return rows, nil
}

// Write records rows.
func Write(file string, rows []Row) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(sorted(rows)); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

func sorted(rows []Row) []Row {
	return slices.SortedFunc(slices.Values(rows), func(a, b Row) int { return cmp.Or(strings.Compare(a.Case, b.Case), strings.Compare(a.Test, b.Test)) })
}

// uuid is LVM's UUID of a physical volume, which differs from run to run.
var uuid = regexp.MustCompile(`\b[0-9A-Za-z]{6}(-[0-9A-Za-z]{4}){5}-[0-9A-Za-z]{6}\b`)

// InEvents returns the rows that tests have printed, by test2json's events.
func InEvents(events []byte) (rows []Row, err error) {
	for line := range bytes.Lines(events) {
		var event struct{ Output string }
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("an event of go test: %w", err)
		}
		_, text, is := strings.Cut(event.Output, mark)
		if !is {
			continue
		}
		var r Row
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return nil, fmt.Errorf("the row %q: %w", text, err)
		}
		r.Message = uuid.ReplaceAllLiteralString(r.Message, "UUID")
		rows = append(rows, r)
	}
	return rows, nil
}

// Update returns the rows of a run, and with those of a part of it also the recorded rows of the other tests.
func Update(recorded, seen []Row, whole bool) []Row {
	if whole {
		return seen
	}
	others := slices.DeleteFunc(slices.Clone(recorded), func(r Row) bool {
		return slices.ContainsFunc(seen, func(now Row) bool { return now.Test == r.Test })
	})
	return append(others, seen...)
}

// Differences says how the rows of a run differ from the recorded ones. If the run was of some tests only, the others' rows may be absent.
func Differences(recorded, seen []Row, whole bool) (differences []string) {
	tests := map[string]Row{}
	for _, r := range seen {
		tests[r.Test] = r
	}
	for _, r := range recorded {
		now, is := tests[r.Test]
		switch {
		case is && now != r:
			differences = append(differences, fmt.Sprintf("%s shows\n%s\nand the record has\n%s", r.Test, line(now), line(r)))
		case !is && whole:
			differences = append(differences, fmt.Sprintf("%s showed nothing; the record has\n%s", r.Test, line(r)))
		}
		delete(tests, r.Test)
	}
	for _, r := range seen {
		if _, is := tests[r.Test]; is {
			differences = append(differences, fmt.Sprintf("%s shows\n%s\nand the record has nothing", r.Test, line(r)))
		}
	}
	return differences
}

const head = "| case | pod | capacity | condition | message | test |\n|---|---|---|---|---|---|\n"

// Table returns the rows as a table of Markdown.
func Table(rows []Row) string {
	text := head
	for _, r := range sorted(rows) {
		text += line(r)
	}
	return text
}

func line(r Row) string {
	cells := []string{r.Case, r.Pod, r.Capacity, r.Condition, r.Message, "`" + r.Test + "`"}
	for i := range cells {
		cells[i] = strings.ReplaceAll(cells[i], "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// Replace returns a page with the rows in the place of those that it has.
func Replace(page string, rows []Row) (string, error) {
	before, rest, is := strings.Cut(page, head)
	if !is {
		return "", fmt.Errorf("the page has no table that begins with %q", head)
	}
	for strings.HasPrefix(rest, "|") {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	return before + Table(rows) + rest, nil
}
