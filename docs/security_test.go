package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage: each paragraph and each point of what intruders can do names a test, or is a recommendation.
func TestSecurityPage(t *testing.T) {
	const page = "explanation/security.md"
	_, text, found := strings.Cut(prose(t, page), "\n## Who can do what\n")
	text, _, ended := strings.Cut(text, "\n## ")
	if !found || !ended {
		t.Fatalf("%s has no section on who can do what, or no section after it", page)
	}
	statements := 0
	for _, block := range regexp.MustCompile(`\n\n+|\n- `).Split(text, -1) {
		block = strings.TrimSpace(regexp.MustCompile("^###.*").ReplaceAllString(strings.TrimSpace(block), ""))
		leads := !strings.HasSuffix(block, ".") // into a list
		if leads || strings.HasPrefix(block, "Each statement ") || strings.HasPrefix(block, "Recommendation: ") {
			continue
		}
		statements++
		if !regexp.MustCompile("`Test[A-Z]\\w*`").MatchString(block) {
			t.Errorf("%s: no test stands beside %q", page, block)
		}
	}
	if statements < 20 {
		t.Errorf("only %d statements were found", statements)
	}
}
