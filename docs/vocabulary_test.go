package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// privateWords are words of names that LVM's manual and Kubernetes' documentation do not have, and what to write instead.
var privateWords = map[string]string{
	"anew": "again", "heal": "recover", "mend": "recover",
	"told": "reported, logged", "tells": "reports", "tend": "extend, maintenance", "tends": "extend", "tending": "maintenance",
	"glance": "cached", "sweep": "scan", "carve": "allocate", "carving": "allocation", "carver": "allocation", "stretches": "ranges",
	"flight": "operation", "flights": "in-flight operations", "turns": "queue", "patient": "check", "caretaker": "maintenance",
	"crowd": "nodes", "crowded": "overcommitted", "strangers": "unknown devices", "stranger": "unknown device", "twins": "duplicates",
	"hurdle": "restriction", "hurdles": "restrictions", "shelf": "store", "orphanage": "classifier", "handmade": "pre-provisioned",
	"newcomers": "new groups", "misfit": "unplaceable",
	"deaf": "without a reader", "blind": "unreadable", "nobody": "none", "somebody": "the actor",
}

// TestVocabulary: files and declared names of all modules use the field's words.
func TestVocabulary(t *testing.T) {
	checked := 0
	check := func(where, name string) {
		checked++
		for _, word := range wordsOf(inFlight.ReplaceAllString(name, "")) {
			if better, banned := privateWords[word]; banned {
				t.Errorf("%s: the name %s has the word %q; write %s, or the glossary's word", where, name, word, better)
			}
		}
	}
	for _, path := range files(t, ".go") {
		check(path, strings.TrimSuffix(filepath.Base(path), ".go"))
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, name := range declaredIn(file) {
			check(path, name)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok {
				for _, name := range field.Names {
					check(path, name.Name)
				}
			}
			return true
		})
	}
	if checked < 5000 {
		t.Fatalf("only %d names were found", checked)
	}
}

// inFlight is Kubernetes' and gRPC's own word.
var inFlight = regexp.MustCompile(`(?i)in_?flight`)

// capital begins a word in CamelCase.
var capital = regexp.MustCompile(`[A-Z][a-z]`)

// wordsOf splits a name in CamelCase, or with underscores, into lower-case words.
func wordsOf(name string) []string {
	return strings.Fields(strings.ToLower(strings.NewReplacer("_", " ", ".", " ").Replace(capital.ReplaceAllString(name, " $0"))))
}

func TestWordsOf(t *testing.T) {
	for name, want := range map[string]string{"toldElsewhere": "told elsewhere", "real_names_test": "real names test", "LVMTold": "lvm told", "aTurn": "a turn"} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
