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

// Table is rows of cells under a header. If the table is wider than the screen, Write cuts the texts of the widest columns in
// their middle, because names differ at their ends. text/tabwriter has no maximum width, and counts the control sequences of
// colours as columns.
type Table struct {
	Header []string
	Rows   [][]Cell
	None   string // printed instead of a table without rows
	Bars   bool   // show fill levels as bars
}

func (t *Table) Add(cells ...Cell) {
	for i := range cells {
		cells[i].Text = printable.Text(cells[i].Text)
	}
	t.Rows = append(t.Rows, cells)
}

const (
	columnGap   = 2
	columnLeast = 5 // the least width of a cut column
)

// Write prints the table with at most width columns; 0 means no limit. Without colour it ignores tones.
func (t *Table) Write(w io.Writer, width int, colour bool) error {
	if len(t.Rows) == 0 {
		_, err := fmt.Fprintln(w, t.None)
		return err
	}
	if t.Bars {
		t.Bars = false
		t.drawBars()
	}
	widths := t.widths(width)
	header := make([]Cell, len(t.Header))
	for i, text := range t.Header {
		header[i].Text = text
	}
	for _, row := range append([][]Cell{header}, t.Rows...) {
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

// drawBars puts a bar before each text with a fill level. It aligns the texts to the right, so that bars begin in one column.
func (t *Table) drawBars() {
	const text = 4 // "100%"
	for _, row := range t.Rows {
		for i, c := range row {
			if c.Fill != nil {
				row[i].Text = bar(*c.Fill) + fmt.Sprintf(" %*s", text, c.Text)
			}
		}
	}
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

// widths gives each column the width of its longest text, and then narrows the widest columns until the table fits the limit.
func (t *Table) widths(limit int) []int {
	widths := make([]int, len(t.Header))
	total := columnGap * (len(widths) - 1)
	for i, text := range t.Header {
		widths[i] = utf8.RuneCountInString(text)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].Text))
		}
		total += widths[i]
	}
	for ; limit > 0 && total > limit; total-- {
		widest := slices.Index(widths, slices.Max(widths))
		if widths[widest] <= columnLeast {
			break
		}
		widths[widest]--
	}
	return widths
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
