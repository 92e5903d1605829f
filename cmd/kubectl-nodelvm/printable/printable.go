// Package printable makes texts of nodes and objects safe to print on a terminal, and as a word of a command that an admin pastes.
package printable

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns a text as one line for a terminal. It escapes control characters, line breaks and marks that change the direction
// of writing. Most of what the plugin prints comes from others: from the driver of a node that an attacker may control, or from
// API objects. It must neither control the terminal nor look like a line of this program.
func Text(text string) string {
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

// Strings applies Text to each text in a value. The plugin applies it to a page on arrival: JSON and YAML output goes to terminals
// too, and both formats leave some control characters and direction marks unescaped.
func Strings(v reflect.Value) {
	switch v.Kind() { //nolint:exhaustive // the other kinds hold no text
	case reflect.String:
		v.SetString(Text(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			Strings(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			Strings(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Strings(v.Field(i))
			}
		}
	}
}

// ShellWord quotes a text as one word of a command that the plugin suggests. A node or an object provides such names; a name that
// contains a command must stay a name when an admin pastes the line into a shell.
func ShellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(shellPlain, r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// shellPlain are the characters of LVM's names and of paths that no shell interprets.
const shellPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+_.-/"

// Lines applies Text to each line of a text, and indents all lines after the first. Tabs become spaces.
func Lines(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = Text(strings.ReplaceAll(lines[i], "\t", "  "))
	}
	return strings.Join(lines, "\n  ")
}
