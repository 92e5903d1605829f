package dashboard

import (
	"strings"
	"unicode/utf8"
)

// Limits of the model. They are far above what a cluster, or LVM's metadata area, holds in practice.
const (
	maxNodes    = 10000
	maxGroups   = 64
	maxDisks    = 512  // of a group
	maxRanges   = 8192 // of a disk
	maxItems    = 8192
	maxPools    = 128 // of a group
	maxMessages = 16
	maxText     = 512 // bytes
)

// cut limits a list, and adds the number of entries that it drops to omitted.
func cut[T any](list []T, limit int, omitted *int) []T {
	if len(list) > limit {
		*omitted += len(list) - limit
		return list[:limit:limit]
	}
	return list
}

// text limits a text to maxText bytes. The result is valid UTF-8.
func text[T ~string](long T) string {
	s := string(long)
	if len(s) > maxText {
		end := maxText
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

func texts(list []string) []string {
	var omitted int
	list = cut(list, maxMessages, &omitted)
	bounded := make([]string, 0, len(list))
	for _, s := range list {
		bounded = append(bounded, text(s))
	}
	return bounded
}
