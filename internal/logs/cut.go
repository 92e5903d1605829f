package logs

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Senders choose the names, parameters and paths in requests, each up to gRPC's 4 MiB, and errors quote them. So this file
// truncates what the driver logs and returns, and escapes what could start a new line. A request then writes at most a few
// times TextMost to the log. The rate of requests has no limit: only root can use the socket, csi-provisioner and the kubelet
// back off, and the container runtime rotates the log.
const (
	wordMost  = 256       // bytes of one word or one quoted text
	TextMost  = 4 * 1024  // bytes of a message, and of each value in the log
	stackMost = 32 * 1024 // bytes of a stack; no sender chooses its content
)

// Cut escapes control characters in a text, and truncates long words and the whole text.
func Cut(text string) string {
	return cutTo(cutWords(oneLine(text)), TextMost)
}

// oneLine escapes what could end a line, control a terminal, or change the direction of the text.
func oneLine(text string) string {
	harmless := func(r rune) bool { return unicode.IsPrint(r) && r != utf8.RuneError }
	if strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var out strings.Builder
	for i, r := range text {
		_, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case harmless(r):
			out.WriteRune(r)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[i])
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return out.String()
}

// cutWords truncates to wordMost each quoted text, and each word outside of quotes.
func cutWords(text string) string {
	if len(text) <= wordMost {
		return text
	}
	var out strings.Builder
	for text != "" {
		n := wordEnd(text)
		out.WriteString(cutTo(text[:n], wordMost))
		if n < len(text) {
			out.WriteByte(text[n])
			n++
		}
		text = text[n:]
	}
	return out.String()
}

// wordEnd returns the end of the first word: a blank, or, if the word begins with a quote, the blank after the closing one.
func wordEnd(text string) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case text[i] == '"':
			quoted = !quoted
		case text[i] == ' ' && !quoted:
			return i
		}
	}
	if quoted { // an unclosed quote does not count
		if i := strings.IndexByte(text, ' '); i >= 0 {
			return i
		}
	}
	return len(text)
}

// cutTo truncates a text, and appends its original length.
func cutTo(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := fmt.Sprintf("... (%d bytes)", len(text))
	n := most - len(end)
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + end
}

// cutting is a handler that truncates what it passes on.
type cutting struct{ slog.Handler }

// Handle implements slog.Handler.
func (h cutting) Handle(ctx context.Context, r slog.Record) error {
	short := slog.NewRecord(r.Time, r.Level, Cut(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		short.AddAttrs(cutAttr(a))
		return true
	})
	return h.Handler.Handle(ctx, short)
}

// WithAttrs implements slog.Handler.
func (h cutting) WithAttrs(attrs []slog.Attr) slog.Handler {
	short := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		short[i] = cutAttr(a)
	}
	return cutting{h.Handler.WithAttrs(short)}
}

// WithGroup implements slog.Handler.
func (h cutting) WithGroup(name string) slog.Handler { return cutting{h.Handler.WithGroup(name)} }

// StackKey is the key of the stack of a call that panicked.
const StackKey = "stack"

// cutAttr truncates a value that is a text or has a textual form. The encoders escape it.
func cutAttr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	if a.Key == StackKey {
		return slog.String(a.Key, cutTo(a.Value.String(), stackMost))
	}
	switch a.Value.Kind() {
	case slog.KindString:
		return slog.String(Cut(a.Key), Cut(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			return slog.String(a.Key, Cut(v.Error()))
		case fmt.Stringer:
			return slog.String(a.Key, Cut(v.String()))
		case []string:
			if list := fmt.Sprintf("%q", v); len(list) > TextMost {
				return slog.String(a.Key, Cut(list))
			}
		default:
			if text := reflect.ValueOf(v); text.Kind() == reflect.String {
				return slog.String(a.Key, Cut(text.String()))
			}
		}
	case slog.KindGroup:
		var short []slog.Attr
		for _, member := range a.Value.Group() {
			short = append(short, cutAttr(member))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(short...)}
	default: // numbers, times and booleans are short
	}
	return a
}
