package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestParametersReference: the reference page and the chart's schema follow from the rows of lvm.Parameters. UPDATE=1 writes them.
func TestParametersReference(t *testing.T) {
	var rows, names, properties []string
	for _, p := range lvm.Parameters {
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", p.Name, p.Meaning+layoutsOf(p), cmp.Or(p.Values, valuesOf(p)), defaultOf(p)))
		names = append(names, p.Name)
		if p.InClass() {
			properties = append(properties, fmt.Sprintf("            %q: %s", p.Name, schemaOf(p)))
		}
	}
	generated(t, "docs/reference/parameters.md", regexp.MustCompile("(?s)\\|---\\|---\\|---\\|---\\|\n(.*?)\\| `csi\\.storage"), strings.Join(rows, ""))
	const schema = "deploy/chart/nodelvm/values.schema.json"
	generated(t, schema, regexp.MustCompile(`"propertyNames": \{"pattern": "\^\(([A-Za-z|]+)\|csi`), strings.Join(names, "|"))
	generated(t, schema, regexp.MustCompile(`(?s)"propertyNames": [^\n]*\n *"properties": \{\n(.*?)\n          \}`), strings.Join(properties, ",\n"))
}

// generated compares the group of a pattern in a file with the text that belongs there.
func generated(t *testing.T, file string, place *regexp.Regexp, want string) {
	t.Helper()
	path := filepath.Join(root, file)
	text, err := os.ReadFile(path)
	must(t, err)
	at := place.FindSubmatchIndex(text)
	switch {
	case at == nil:
		t.Fatalf("%s has no place for the parameters: %s", file, place)
	case string(text[at[2]:at[3]]) == want:
	case os.Getenv("UPDATE") != "":
		must(t, os.WriteFile(path, []byte(string(text[:at[2]])+want+string(text[at[3]:])), 0o600))
	default:
		t.Errorf("%s has other parameters than lvm.Parameters (UPDATE=1 writes them):\n%s\nwant:\n%s", file, text[at[2]:at[3]], want)
	}
}

func layoutsOf(p lvm.Parameter) string {
	var with, without []string
	for _, layout := range lvm.Layouts {
		if _, has := p.In(layout); has {
			with = append(with, string(layout))
		} else {
			without = append(without, string(layout))
		}
	}
	switch len(without) {
	case 0:
		return ""
	case 1:
		return " (all but " + without[0] + ")"
	}
	return " (" + strings.Join(with, ", ") + ")"
}

func valuesOf(p lvm.Parameter) string {
	switch p.Form {
	case lvm.FormChoice:
		return "`" + strings.Join(p.Choices, "`, `") + "`"
	case lvm.FormCount:
		var ranges []string
		for _, layout := range lvm.Layouts {
			switch r, has := p.In(layout); {
			case has && r.Least == r.Most:
				ranges = append(ranges, fmt.Sprintf("%s: %d", layout, r.Least))
			case has:
				ranges = append(ranges, fmt.Sprintf("%s: %d to %d", layout, r.Least, r.Most))
			}
		}
		return "a whole number. " + strings.Join(ranges, "; ")
	case lvm.FormRatio:
		r := widest(p)
		return fmt.Sprintf("a number from %d to %d, at most two decimals", r.Least/100, r.Most/100)
	case lvm.FormSize:
		r := widest(p)
		return fmt.Sprintf("a power of two from `%dKi` to `%dMi`", r.Least, r.Most/1024)
	case lvm.FormText:
	}
	return "a text"
}

// widest is the range over all layouts, with the default of most of them.
func widest(p lvm.Parameter) (all lvm.Range) {
	for _, layout := range lvm.Layouts {
		if r, has := p.In(layout); has {
			all = lvm.Range{Least: min(cmp.Or(all.Least, r.Least), r.Least), Most: max(all.Most, r.Most), Default: cmp.Or(all.Default, r.Default)}
		}
	}
	return all
}

func defaultOf(p lvm.Parameter) string {
	usual := widest(p).Default
	switch p.Form {
	case lvm.FormCount:
		var others []string
		for _, layout := range lvm.Layouts {
			if r, has := p.In(layout); has && r.Default != usual {
				others = append(others, fmt.Sprintf(" (%s: %d)", layout, r.Default))
			}
		}
		return strconv.Itoa(usual) + strings.Join(others, "")
	case lvm.FormSize:
		return fmt.Sprintf("`%dKi`", usual)
	case lvm.FormRatio:
		return strconv.Itoa(usual / 100)
	case lvm.FormChoice, lvm.FormText:
	}
	switch {
	case p.Name == lvm.Parameters[0].Name:
		return "required"
	case p.Default == "":
		return "none"
	}
	return "`" + p.Default + "`"
}

func schemaOf(p lvm.Parameter) string {
	r := widest(p)
	switch p.Form {
	case lvm.FormChoice:
		return `{"enum": ["` + strings.Join(p.Choices, `", "`) + `"]}`
	case lvm.FormCount:
		digits := "[1-9]" + strings.Repeat("[0-9]?", len(strconv.Itoa(r.Most))-1)
		return fmt.Sprintf(`{"type": ["string", "integer"], "pattern": "^%s$", "minimum": %d, "maximum": %d}`, digits, r.Least, r.Most)
	case lvm.FormSize:
		return `{"type": "string", "pattern": "^[1-9][0-9]*[kKmM]i?B?$"}`
	case lvm.FormRatio:
		return fmt.Sprintf(`{"type": ["string", "number"], "pattern": "^[0-9]+([.][0-9]+)?$", "minimum": %d, "maximum": %d}`, r.Least/100, r.Most/100)
	case lvm.FormText:
	}
	return `{"type": "string", "minLength": 1}`
}
