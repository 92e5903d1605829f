package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestMessages: each message in the reference is one that the code prints, word for word, with … for what it fills in.
func TestMessages(t *testing.T) {
	printed := map[string]bool{}
	for _, file := range sources(t) {
		ast.Inspect(file, func(node ast.Node) bool {
			if text, ok := fold(node); ok {
				printed[text] = true
				return false
			}
			return true
		})
	}
	told := 0
	for _, page := range []string{"reference/errors.md", "reference/events.md"} {
		for _, found := range regexp.MustCompile("(?m)\\| `([^`|]* [^`|]*)` \\|").FindAllStringSubmatch(prose(t, page), -1) {
			told++
			if !printed[adjacent.ReplaceAllString(found[1], "…")] {
				t.Errorf("%s: nothing prints %q", page, found[1])
			}
		}
	}
	if told < 30 {
		t.Errorf("only %d messages were found", told)
	}
}

// TestEventsReference: the reference names the reasons of all events and all conditions.
func TestEventsReference(t *testing.T) {
	page := prose(t, "reference/events.md")
	var reasons, conditions []string
	for _, file := range sources(t) {
		reasons = append(reasons, constants(file, "Reason")...)
		conditions = append(conditions, constants(file, "Condition")...)
	}
	if len(reasons) < 5 || len(conditions) < 9 {
		t.Fatalf("found only the reasons %q and the conditions %q", reasons, conditions)
	}
	for _, reason := range reasons {
		if !strings.Contains(page, "`"+reason+"`") {
			t.Errorf("docs/reference/events.md lacks the reason %s: add a row", reason)
		}
	}
	for _, condition := range conditions {
		if row := "\n| `" + condition + "` | " + string(lvm.ConditionType(condition).Severity()) + " |"; !strings.Contains(page, row) {
			t.Errorf("docs/reference/events.md lacks the condition %s: add a row to the last table that begins with%s", condition, row)
		}
	}
}

// TestAlertSeverities: the alert of a condition has the condition's severity.
func TestAlertSeverities(t *testing.T) {
	text, err := os.ReadFile("../deploy/chart/nodelvm/files/alerts.yaml")
	must(t, err)
	var conditions []string
	for _, file := range sources(t) {
		conditions = append(conditions, constants(file, "Condition")...)
	}
	compared := 0
	for _, alert := range regexp.MustCompile(`alert: Nodelvm(\w+)\n(?:.*\n)*?\s+severity: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(conditions, alert[1]) {
			continue
		}
		compared++
		if want := lvm.ConditionType(alert[1]).Severity(); alert[2] != string(want) {
			t.Errorf("alert Nodelvm%s has the severity %s, its condition has %s", alert[1], alert[2], want)
		}
	}
	if want := len(conditions) - 1; compared != want { // VolumeRebuilding has no alert
		t.Errorf("%d conditions have an alert, want %d", compared, want)
	}
}

// TestKindsReference: the reference has each kind of error.
func TestKindsReference(t *testing.T) {
	page := prose(t, "reference/errors.md")
	count := 0
	for _, file := range sources(t) {
		for _, object := range names(file) {
			if kind, ok := strings.CutPrefix(object, "Kind"); ok && kind != "" && file.Name.Name == "lvm" {
				count++
				if !strings.Contains(page, "\n| `"+kind+"` |") {
					t.Errorf("docs/reference/errors.md lacks the kind %s: add a row to the first table", kind)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d kinds were found", count)
	}
}

// sources are the driver's files without their tests.
func sources(t *testing.T) (files []*ast.File) {
	t.Helper()
	for _, folder := range []string{"api", "cmd", "controller", "internal", "kube", "lvm", "node", "pending"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "lvmtest") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			files = append(files, file)
			return err
		})
		must(t, err)
	}
	return files
}

// fold reads a literal, or a sum of literals and other things, as the text that it prints, with … for the others.
func fold(node ast.Node) (text string, ok bool) {
	switch n := node.(type) {
	case *ast.BasicLit:
		if n.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(n.Value)
		return filled(value), err == nil
	case *ast.BinaryExpr:
		if n.Op != token.ADD {
			return "", false
		}
		left, okLeft := fold(n.X)
		right, okRight := fold(n.Y)
		if !okLeft && !okRight {
			return "", false
		}
		return filled(orFilled(left, okLeft) + orFilled(right, okRight)), true
	}
	return "", false
}

func orFilled(text string, known bool) string {
	if known {
		return text
	}
	return "…"
}

var (
	verbs    = regexp.MustCompile(`%[-+#0-9.]*(?:\[\d+\])?[a-zA-Z]`)
	adjacent = regexp.MustCompile(`…([ /]?…)+`)
)

// filled puts … where a format is filled in; what stands side by side is one.
func filled(format string) string {
	text := verbs.ReplaceAllString(strings.ReplaceAll(format, "%%", "\x00"), "…")
	return adjacent.ReplaceAllString(strings.ReplaceAll(text, "\x00", "%"), "…")
}

// constants are the values of a file's constants with this prefix whose values are written out.
func constants(file *ast.File, prefix string) (values []string) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok || len(spec.Names) != 1 || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			values = append(values, strings.Trim(lit.Value, `"`))
		}
		return false
	})
	return values
}

// names are what a file declares as constants.
func names(file *ast.File) (all []string) {
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				all = append(all, name.Name)
			}
		}
	}
	return all
}
