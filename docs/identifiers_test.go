package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestIdentifiers: the files, folders and Go identifiers that the guides for developers and the package comments name exist.
func TestIdentifiers(t *testing.T) {
	declared, comments := declarations(t)
	var named int
	check := func(where, folder, text string) {
		for _, found := range paths.FindAllStringSubmatch(text, -1) {
			named++
			if !exists(folder, found[1]) {
				t.Errorf("%s: there is no file or folder %s", where, found[1])
			}
		}
		for _, found := range qualified.FindAllStringSubmatch(text, -1) {
			if !declared[found[1]] {
				continue // neither a package nor a type of the checkout: another library's, or prose
			}
			named++
			if !declared[found[0]] {
				t.Errorf("%s: %s is not declared", where, found[0])
			}
		}
	}
	guides := []string{"CONTRIBUTING.md", "README.md", "docs/explanation/design.md"}
	development, err := filepath.Glob(filepath.Join(root, "docs/development/*.md"))
	if err != nil || len(development) == 0 {
		t.Fatalf("the guides for developers: %q, %v", development, err)
	}
	for _, page := range development {
		guides = append(guides, strings.TrimPrefix(page, root+"/"))
	}
	for _, page := range guides {
		check(page, "", prose(t, filepath.Join(root, page)))
	}
	for path, comment := range comments {
		check(path, filepath.Dir(path), comment)
	}
	if named < 40 {
		t.Errorf("only %d names were found", named)
	}
}

var (
	// paths finds what is below a folder of the checkout, and names of Go files.
	paths = regexp.MustCompile(`(?:^|[\s(\x60"])((?:(?:api|cmd|controller|deploy|docs|internal|kube|lvm|node|pending|report|test)/[\w./-]*\w|[\w/]+\.go))\b`)
	// qualified finds package.Name, Type.Method and package.Type.Method.
	qualified = regexp.MustCompile(`\b([A-Za-z]\w*)(?:\.[A-Z]\w*)+\b`)
)

// exists looks for a path from the root of the checkout, or beside the package that names it.
func exists(folder, path string) bool {
	for _, base := range []string{root, filepath.Join(root, folder)} {
		if _, err := os.Stat(filepath.Join(base, path)); err == nil {
			return true
		}
	}
	return false
}

// declarations are the names that the code of the checkout declares, each in all forms in which prose can name it, and the
// comments of its packages by file.
func declarations(t *testing.T) (declared map[string]bool, comments map[string]string) {
	t.Helper()
	declared, comments = map[string]bool{}, map[string]string{}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		must(t, err)
		declared[file.Name.Name] = true
		for _, name := range declaredIn(file) {
			declared[name], declared[file.Name.Name+"."+name] = true, true
			if _, member, ok := strings.Cut(name, "."); ok {
				declared[file.Name.Name+"."+member] = true // controller.CreateVolume, a method of its server
			}
		}
		if file.Doc != nil {
			comments[strings.TrimPrefix(path, root+"/")] = file.Doc.Text()
		}
	}
	return declared, comments
}

// declaredIn lists what a file declares, and Type.Name for methods, fields and an interface's methods.
func declaredIn(file *ast.File) (all []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = typeName(d.Recv.List[0].Type) + "." + name
			}
			all = append(all, name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					all = append(all, s.Name.Name)
					for _, member := range members(s.Type) {
						all = append(all, s.Name.Name+"."+member)
					}
				case *ast.ValueSpec:
					for _, name := range s.Names {
						all = append(all, name.Name)
					}
				}
			}
		}
	}
	return all
}

func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// members are the fields of a struct and the methods of an interface.
func members(expr ast.Expr) (all []string) {
	var list *ast.FieldList
	switch e := expr.(type) {
	case *ast.StructType:
		list = e.Fields
	case *ast.InterfaceType:
		list = e.Methods
	default:
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, name.Name)
		}
	}
	return all
}
