// Package printable makes texts of nodes and objects safe to show: on a terminal, and as a word of a command that an admin pastes.
package printable

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text shows a text as one line of a terminal: control characters, line breaks, and what turns the direction of writing are
// escaped. Most of what is printed was written by others: by the driver of a node that an attacker may have taken over, or into
// an object of the API. It must neither command the terminal nor look like a line of this program's.
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

// Strings does this for each text in a value. A page is made printable as it arrives: output for programs goes to terminals
// too, and JSON and YAML leave some control characters, and the marks that turn the direction of writing, as they are.
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

// ShellWord is a text as one word of a command that the plugin suggests. Names in it are a node's or an object's: a name that is
// itself a command must stay a name when an admin pastes the line into a shell.
func ShellWord(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(shellPlain, r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// shellPlain are the characters of LVM's names and of paths that no shell interprets.
const shellPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+_.-/"

// Lines keeps the line breaks of a text. Each further line is indented: it belongs to the first.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = Text(lines[i])
	}
	return strings.Join(lines, "\n  ")
}
