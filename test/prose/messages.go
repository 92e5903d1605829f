package prose

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
)

// Messages returns, for each line of a Go file, the texts that begin there and that a user may read.
func Messages(source []byte) (map[int][]string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	found := map[int][]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		if field, ok := node.(*ast.Field); ok && field.Tag != nil {
			return false
		}
		if _, ok := node.(*ast.ImportSpec); ok {
			return false
		}
		expr, ok := node.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := literal(expr)
		if !ok {
			return true
		}
		line := files.Position(expr.Pos()).Line
		for i, part := range strings.Split(text, "\n") {
			if isMessage(part) {
				found[line+rawLines(expr, i)] = append(found[line+rawLines(expr, i)], plain(part))
			}
		}
		return false
	})
	return found, nil
}

// rawLines is how many lines of the source lie before line i of the text: only raw strings keep the lines of their text.
func rawLines(expr ast.Expr, i int) int {
	if lit, ok := expr.(*ast.BasicLit); ok && strings.HasPrefix(lit.Value, "`") {
		return i
	}
	return 0
}

// literal joins literals and what stands between them, as in "cannot open " + path + ": the device is busy".
func literal(expr ast.Expr) (text string, ok bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return "", false
		}
		left, okLeft := literal(e.X)
		right, okRight := literal(e.Y)
		if !okLeft && !okRight {
			return "", false
		}
		if !okLeft {
			left = "X"
		}
		if !okRight {
			right = "X"
		}
		return left + right, true
	}
	return "", false
}

var (
	word = regexp.MustCompile(`\b[A-Za-z][a-z]+\b`)
	code = regexp.MustCompile(`^\s*[<({\[.#&|/-]|[{}\\]|\(\?|=~|==`)
	verb = regexp.MustCompile(`%[-+#0-9.*\[\]]*[a-zA-Z]`)
	mark = regexp.MustCompile("[<>*_`\\[\\]#]")
)

// isMessage tells prose from names, patterns, command lines and markup: three words of letters, separated by spaces.
func isMessage(text string) bool {
	return len(word.FindAllString(text, 3)) == 3 && strings.Count(strings.TrimSpace(text), " ") >= 2 && !code.MatchString(text)
}

// plain is a message without what Markdown would take for markup, and with X for what a format fills in.
func plain(message string) string {
	return strings.TrimSpace(mark.ReplaceAllString(verb.ReplaceAllString(message, "X"), ""))
}
