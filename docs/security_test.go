package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestSecurityPage: each part of the page on security that says who can do what has its tests, and each row of them names one.
func TestSecurityPage(t *testing.T) {
	const page, list = "explanation/security.md", "development/security-tests.md"
	_, text, found := strings.Cut(prose(t, page), "\n## Who can do what\n")
	text, _, ended := strings.Cut(text, "\n## ")
	if !found || !ended {
		t.Fatalf("%s has no section on who can do what, or no section after it", page)
	}
	tests := prose(t, list)
	who := regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(text, -1)
	for _, title := range who {
		if !strings.Contains(tests, "\n## "+title[1]+"\n") {
			t.Errorf("%s lacks %q", list, title[1])
		}
	}
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| .*`).FindAllString(tests, -1) {
		if strings.HasPrefix(row, "| statement |") {
			continue
		}
		rows++
		if !regexp.MustCompile("`Test[A-Z]\\w*`").MatchString(row) {
			t.Errorf("%s: no test is named in the row %q", list, row)
		}
	}
	if len(who) < 9 || rows < 30 {
		t.Errorf("only %d titles and %d rows were found", len(who), rows)
	}
}
