package docrun

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	number = regexp.MustCompile(`[0-9]+([.][0-9]+)?`)
	unit   = regexp.MustCompile(`^[KMGT]?i?B$`)
	space  = regexp.MustCompile(`\s+`)
)

const anything = "…"

// Differs says which line of want is not in got, in this order; "" means that all are. Numbers, sizes and the width of columns may differ, and "…" stands for any text.
func Differs(want []string, got string) string {
	lines := strings.Split(got, "\n")
	at := 0
	for _, wanted := range want {
		if strings.TrimSpace(wanted) == "" || strings.TrimSpace(wanted) == anything {
			continue
		}
		pattern := loose(wanted)
		for at < len(lines) && !pattern.MatchString(strings.TrimSpace(lines[at])) {
			at++
		}
		if at == len(lines) {
			return fmt.Sprintf("no line like %q", wanted)
		}
		at++
	}
	return ""
}

// loose matches a line that differs in numbers and spaces only.
func loose(line string) *regexp.Regexp {
	parts := strings.Split(strings.TrimSpace(line), anything)
	for i, part := range parts {
		var words []string
		for _, word := range space.Split(part, -1) {
			words = append(words, looseWord(word))
		}
		parts[i] = strings.Join(words, `\s+`)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
}

func looseWord(word string) string {
	if unit.MatchString(word) {
		return `[KMGT]?i?B`
	}
	var out strings.Builder
	at := 0
	for _, place := range number.FindAllStringIndex(word, -1) {
		out.WriteString(regexp.QuoteMeta(word[at:place[0]]))
		out.WriteString(`[0-9]+([.][0-9]+)?`)
		at = place[1]
	}
	out.WriteString(regexp.QuoteMeta(word[at:]))
	return out.String()
}
