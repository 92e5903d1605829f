package encryption

import (
	"testing"
	"unicode/utf8"
)

// TestDocumentedKey: the page's command creates a key that a Secret can have, and each time another one.
func TestDocumentedKey(t *testing.T) {
	first, err := documentedKey(t.Context())
	if err != nil || len(first) < 32 || !utf8.ValidString(first) {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	if second, err := documentedKey(t.Context()); err != nil || first == second {
		t.Errorf("twice the same key, %v", err)
	}
}
