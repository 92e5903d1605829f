package prose

import (
	"maps"
	"slices"
	"testing"
)

func TestMessages(t *testing.T) {
	source := `package p

import "the quick brown/path"

var tag struct {
	A int ` + "`json:\"not a message\"`" + `
}

func f(path string, err error) error {
	usage := ` + "`First line of usage.\nThe second line of usage`" + `
	log("short one", "key", usage)
	return fmt.Errorf("cannot open the %q: "+"see *that* or "+path+" in %[1]s", path)
}

var pattern = "^a b c d$ (?:no prose)"
`
	got, err := Messages([]byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int][]string{10: {"First line of usage."}, 11: {"The second line of usage"}, 13: {`cannot open the X: see that or X in X`}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestComments(t *testing.T) {
	source := `# One sentence
# on two lines.
# commented: out
key: value   # beside a value
other: "#no comment"
description: "What it is."
{{- /* A template's
   comment. */ -}}
  summary: >-
`
	got := Comments([]byte(source))
	want := map[int][]string{1: {"One sentence"}, 2: {"on two lines."}, 4: {"beside a value"}, 6: {"What it is."}, 7: {"A template's"}, 8: {"comment."}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNotes(t *testing.T) {
	got := Notes([]byte("{{ .Name }} is installed.\n\n{{- if .Values.a }}\nTo check it:\n  kubectl get pods\n"))
	want := map[int][]string{1: {"X is installed."}, 4: {"To check it:"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAlerts: what Vale finds in a copy is shown at its source.
func TestAlerts(t *testing.T) {
	got, err := alerts([]byte(`{"docs/b.md":[{"Check":"Nodelvm.Words","Line":3,"Message":"m","Severity":"error"}],
		"dist/prose/kube/a.go.md":[{"Check":"Nodelvm.Words","Line":2,"Message":"n","Severity":"warning"}]}`))
	want := []Alert{{"docs/b.md", 3, "Nodelvm.Words", "m", "error"}, {"kube/a.go", 2, "Nodelvm.Words", "n", "warning"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
