package main

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nodelvm/nodelvm/"

// listed is what `go list` prints for a package.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	GoFiles    []string
	Imports    []string // direct
	Deps       []string // all, the standard library's included
}

// TestImports holds the packages to docs/explanation/design.md, "Where to find it in the code".
func TestImports(t *testing.T) {
	packages := list(t)
	standard := map[string]bool{"unsafe": true, "C": true}
	for _, p := range packages {
		standard[p.ImportPath] = p.Standard
	}
	for _, p := range packages {
		name, ours := strings.CutPrefix(p.ImportPath, module)
		if !ours {
			continue
		}
		for _, dep := range p.Deps {
			if why := forbidden(name, dep, standard[dep]); why != "" {
				t.Errorf("%s depends on %s: %s", name, dep, why)
			}
		}
		for _, dep := range p.Imports {
			if why := forbiddenDirectly(name, dep); why != "" {
				t.Errorf("%s imports %s: %s", name, dep, why)
			}
		}
		if name == "lvm" {
			expectOneRunner(t, p)
		}
	}
}

const withClientGo = "of the driver, kube is the only package with client-go"

// forbidden says why a package must not depend on another, be it through others.
func forbidden(name, dep string, standard bool) string {
	ours := strings.HasPrefix(dep, module)
	switch name {
	case "lvm", "lvm/inventory", "lvm/lvmtest":
		if !standard && !ours && !isOrUnder(dep, "golang.org/x/sys") {
			return "lvm stands on the standard library and golang.org/x/sys alone"
		}
		if ours && !isOrUnder(dep, module+"lvm") {
			return "lvm knows nobody above it"
		}
	case "statuspage", "cmd/kubectl-nodelvm":
		if ours && dep != module+"statuspage" && dep != module+"lvm/inventory" {
			return "the plugin runs on people's own machines, and lvm on Linux alone"
		}
	case "controller", "node", "kube":
		if ours && !isOrUnder(dep, module+name) && !isOrUnder(dep, module+"lvm") {
			return "controller, node and kube know lvm and not each other"
		}
	}
	if name != "kube" && !strings.HasPrefix(name, "cmd/") && isOrUnder(dep, "k8s.io/client-go") {
		return withClientGo
	}
	return ""
}

// forbiddenDirectly says why a package must not itself import another.
func forbiddenDirectly(name, dep string) string {
	switch {
	case dep == "os/exec" && name != "lvm":
		return "processes are started by lvm's runner, and by mount-utils for node"
	case (isOrUnder(dep, "k8s.io/mount-utils") || dep == "k8s.io/utils/exec") && name != "node":
		return "mounting is node's job"
	case isOrUnder(dep, "k8s.io/client-go") && name != "kube" && name != "cmd/kubectl-nodelvm":
		return withClientGo
	case name == "kube" && (isOrUnder(dep, "google.golang.org/grpc") || isOrUnder(dep, "github.com/container-storage-interface")):
		return "kube has nothing to do with CSI"
	case strings.HasPrefix(dep, module+"cmd/") || dep == module+"lvm/lvmtest":
		return "nothing that is shipped stands on this"
	}
	return ""
}

// expectOneRunner fails unless run.go is the one file of lvm that can start a process.
func expectOneRunner(t *testing.T, lvm listed) {
	t.Helper()
	var runners []string
	for _, name := range lvm.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(lvm.Dir, name), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range file.Imports {
			if spec.Path.Value == `"os/exec"` {
				runners = append(runners, name)
			}
		}
	}
	if !slices.Equal(runners, []string{"run.go"}) {
		t.Errorf("lvm starts processes in %q; want run.go alone", runners)
	}
}

func isOrUnder(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

// list asks the go command for every package of the module and everything below them.
func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-json=ImportPath,Dir,Standard,GoFiles,Imports,Deps", module+"...").Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			t.Fatalf("go list: %v: %s", err, failed.Stderr)
		}
		t.Fatal(err)
	}
	var packages []listed
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	ours := func(p listed) bool { return strings.HasPrefix(p.ImportPath, module) }
	if !slices.ContainsFunc(packages, ours) {
		t.Fatal("go list names no package of this module: nothing was checked")
	}
	return packages
}

// TestRules shows that each rule can fail.
func TestRules(t *testing.T) {
	for _, test := range []struct {
		name, dep string
		standard  bool
	}{
		{"lvm", "google.golang.org/grpc/codes", false},
		{"lvm", module + "kube", false},
		{"lvm/lvmtest", "github.com/google/go-cmp/cmp", false},
		{"controller", module + "node", false},
		{"node", module + "controller", false},
		{"node", module + "kube", false},
		{"controller", "k8s.io/client-go/rest", false},
		{"statuspage", "k8s.io/client-go/rest", false},
		{"statuspage", module + "lvm", false},
		{"cmd/kubectl-nodelvm", module + "controller", false},
	} {
		if forbidden(test.name, test.dep, test.standard) == "" {
			t.Errorf("%s may depend on %s", test.name, test.dep)
		}
	}
	for _, test := range [][2]string{
		{"node", "os/exec"}, {"cmd/nodelvm", "os/exec"}, {"controller", "k8s.io/mount-utils"}, {"lvm", "k8s.io/utils/exec"},
		{"cmd/nodelvm", "k8s.io/client-go/kubernetes"}, {"kube", "google.golang.org/grpc"}, {"controller", module + "lvm/lvmtest"},
	} {
		if forbiddenDirectly(test[0], test[1]) == "" {
			t.Errorf("%s may import %s", test[0], test[1])
		}
	}
}
