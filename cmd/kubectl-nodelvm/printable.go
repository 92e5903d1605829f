package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable shows a text as one line of a terminal: control characters, line breaks, and what turns the direction of writing are
// escaped. Most of what is printed was written by others: by the driver of a node that an attacker may have taken over, or into
// an object of the API. It must neither command the terminal nor look like a line of this program's.
func printable(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isUnprintable) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isUnprintable(r):
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		default:
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
	return b.String()
}

func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// printableLines keeps the line breaks of a text. Each further line is indented: it belongs to the first.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n  ")
}
