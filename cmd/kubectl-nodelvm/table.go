package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// tone is how a cell is to be taken; it shows as a colour.
type tone string

const (
	plain tone = ""
	good  tone = "\x1b[32m"
	bad   tone = "\x1b[31m"

	toneEnd = "\x1b[0m"
)

// cell is one field of a table.
type cell struct {
	text string
	tone tone
}

// table is rows of cells under a header. Where it is wider than the screen, the widest columns are cut, each text in its
// middle: names differ at their ends. text/tabwriter fits no width, and counts the colours' control sequences as columns.
type table struct {
	header []string
	rows   [][]cell
	none   string // what is said in place of a table without rows
}

func (t *table) add(cells ...cell) {
	for i := range cells {
		cells[i].text = printable(cells[i].text)
	}
	t.rows = append(t.rows, cells)
}

const (
	columnGap   = 2
	columnLeast = 5 // a cut column keeps so much, unless its header is longer
)

// write prints the table at most width wide; 0 is without limit. Without colour, tones do not show.
func (t *table) write(w io.Writer, width int, colour bool) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(w, t.none)
		return err
	}
	widths := t.widths(width)
	header := make([]cell, len(t.header))
	for i, text := range t.header {
		header[i].text = text
	}
	for _, row := range append([][]cell{header}, t.rows...) {
		var line strings.Builder
		for i, c := range row {
			text := shorten(c.text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+columnGap)
			if colour && c.tone != plain {
				text = string(c.tone) + text + toneEnd
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

// widths gives each column what its longest text needs, and then takes from the widest until the whole fits.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.header))
	total := columnGap * (len(widths) - 1)
	for i, text := range t.header {
		widths[i] = utf8.RuneCountInString(text)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
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

// shorten cuts a text in its middle.
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
