package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// interpreters would read a user's name as code, or run their arguments in another place.
var interpreters = []string{"sh", "bash", "dash", "ash", "busybox", "env", "xargs", "eval", "perl", "python3", "nsenter", "chroot", "sudo"}

// TestNoShell: no command line of the driver's goes through a shell. It checks each string of the code, because a
// program's name may come from far away.
func TestNoShell(t *testing.T) {
	starts := 0
	for _, p := range list(t) {
		if !strings.HasPrefix(p.ImportPath, module) {
			continue
		}
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			must(t, err)
			shells, calls := shellsIn(file)
			starts += calls
			for _, shell := range shells {
				t.Errorf("%s/%s names %q", p.ImportPath, name, shell)
			}
		}
	}
	if starts < 4 {
		t.Errorf("only %d places were found that start a process", starts)
	}
}

// TestShellCheckCanFail shows that the test above can fail.
func TestShellCheckCanFail(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "", `package p; var x = exec.Command("/bin/sh", "-c", "rm "+name)`, 0)
	must(t, err)
	if shells, calls := shellsIn(file); !slices.Equal(shells, []string{"/bin/sh"}) || calls != 1 {
		t.Errorf("found %q in %d calls", shells, calls)
	}
}

// shellsIn finds the strings of a file that name an interpreter, and counts the calls that make a command.
func shellsIn(file *ast.File) (shells []string, calls int) {
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			if n.Kind == token.STRING && err == nil && slices.Contains(interpreters, filepath.Base(text)) {
				shells = append(shells, text)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "Command" || f.Sel.Name == "CommandContext") {
				calls++
			}
		}
		return true
	})
	return shells, calls
}
