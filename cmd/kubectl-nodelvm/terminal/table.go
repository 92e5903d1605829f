// Package terminal prints tables for a terminal of limited width, with colours and bars.
package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/printable"
)

// Tone is how good a cell's value is, as the control sequence of its colour.
type Tone string

const (
	Plain Tone = ""
	Good  Tone = "\x1b[32m"
	Late  Tone = "\x1b[33m"
	Bad   Tone = "\x1b[31m"

	ToneEnd = "\x1b[0m"
)

// Cell is one field of a table.
type Cell struct {
	Text string
	Tone Tone
	Fill *float64 // 0 to 1: a terminal shows it as a bar before the text
}

// Table is rows of cells under a header. On a screen that is narrower than the table, Write leaves out bars, and cuts sentences in
// their middle. It never cuts a name or a size: such a line is wider than the screen, as kubectl's. text/tabwriter counts the control
// sequences of colours as columns.
type Table struct {
	Header    []string
	Sentences []string // Headers of the columns that have sentences.
	Rows      [][]Cell
	None      string // printed instead of a table without rows
	Bars      bool   // show fill levels as bars
}

func (t *Table) Add(cells ...Cell) {
	for i := range cells {
		cells[i].Text = printable.Text(cells[i].Text)
	}
	t.Rows = append(t.Rows, cells)
}

const (
	columnGap     = 2
	sentenceLeast = 24 // the least width of a cut column
)

// Write prints the table for a screen of width columns; 0 means no limit. Without colour it ignores tones.
func (t *Table) Write(w io.Writer, width int, colour bool) error {
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w, t.None)
		return err
	}
	rows := t.Rows
	if t.Bars {
		rows = withBars(t.Rows)
	}
	widths, fits := t.widths(rows, width)
	if !fits && t.Bars {
		rows = t.Rows
		widths, _ = t.widths(rows, width)
	}
	header := make([]Cell, len(t.Header))
	for i, text := range t.Header {
		header[i].Text = text
	}
	for _, row := range append([][]Cell{header}, rows...) {
		var line strings.Builder
		for i, c := range row {
			text := shorten(c.Text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+columnGap)
			if colour && c.Tone != Plain {
				text = string(c.Tone) + text + ToneEnd
			}
			if i == len(row)-1 {
				pad = ""
			}
			line.WriteString(text + pad)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// withBars puts a bar before each text with a fill level. It aligns the texts to the right, so that bars begin in one column.
func withBars(rows [][]Cell) (drawn [][]Cell) {
	const text = 4 // "100%"
	for _, row := range rows {
		row = slices.Clone(row)
		for i, c := range row {
			if c.Fill != nil {
				row[i].Text = bar(*c.Fill) + fmt.Sprintf(" %*s", text, c.Text)
			}
		}
		drawn = append(drawn, row)
	}
	return drawn
}

// barWidth is the number of columns of a bar.
const barWidth = 8

// bar draws a fill level. The bar is empty only at 0, and full only at 1.
func bar(fill float64) string {
	blocks := int(fill * barWidth)
	switch {
	case fill <= 0:
		blocks = 0
	case fill >= 1:
		blocks = barWidth
	default:
		blocks = min(max(blocks, 1), barWidth-1)
	}
	return strings.Repeat("█", blocks) + strings.Repeat("░", barWidth-blocks)
}

// LevelCell returns a fill level in percent, rounded down, with a colour if an admin must act.
func LevelCell(part, whole float64) Cell {
	if whole <= 0 {
		return Cell{Text: "-"}
	}
	fill := part / whole
	c := Cell{Text: fmt.Sprintf("%d%%", int(100*fill)), Fill: &fill}
	switch {
	case fill >= fullFrom:
		c.Tone = Bad
	case fill >= lateFrom:
		c.Tone = Late
	}
	return c
}

// From these fill levels on, a cell has the tone Late, and the tone Bad.
const (
	lateFrom = 0.85
	fullFrom = 0.95
)

// widths gives each column the width of its longest text, and then narrows the columns with sentences. fits reports whether the table
// has at most limit columns then.
func (t *Table) widths(rows [][]Cell, limit int) (widths []int, fits bool) {
	widths = make([]int, len(t.Header))
	total := columnGap * (len(widths) - 1)
	for i, text := range t.Header {
		widths[i] = utf8.RuneCountInString(text)
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].Text))
		}
		total += widths[i]
	}
	for i, text := range t.Header {
		if excess := total - limit; limit > 0 && excess > 0 && slices.Contains(t.Sentences, text) {
			narrow := min(widths[i], max(sentenceLeast, widths[i]-excess))
			total -= widths[i] - narrow
			widths[i] = narrow
		}
	}
	return widths, limit == 0 || total <= limit
}

// shorten replaces the middle of a text by an ellipsis, so that it fits width columns.
func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	if width < 3 {
		return string(runes[:width])
	}
	head := width / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-head-1):])
}
