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
		if file := processes[name]; file != "" {
			expectProcessesIn(t, p, file)
		}
	}
}

// commands are the packages under those that work on volume groups: they read, plan, and run single commands.
var commands = []string{"lvm", "lvm/tail", "lvm/internal/accepted", "lvm/internal/ondisk", "lvm/internal/alloc", "internal/dm", "internal/durable", "lvm/internal/lvmcmd"}

// changes are the packages under those that change volume groups by several commands.
var changes = slices.Concat(commands, []string{"lvm/internal/oplock", "lvm/internal/zeroed", "lvm/internal/engine"})

// layers are the packages of this module that the vocabulary and each package of the engine may use, beside api.
var layers = map[string][]string{
	"api":                    {},
	"lvm":                    {},
	"report":                 {"lvm"},
	"lvm/tail":               {},
	"internal/dm":            {"lvm", "lvm/tail"},
	"internal/durable":       {},
	"lvm/internal/accepted":  {"lvm", "internal/durable"},
	"lvm/internal/ondisk":    {"lvm", "lvm/tail", "lvm/internal/accepted", "internal/dm", "internal/durable"},
	"lvm/internal/alloc":     {"lvm"},
	"lvm/internal/lvmcmd":    {"lvm", "lvm/tail", "lvm/internal/accepted", "lvm/internal/ondisk", "lvm/internal/alloc", "internal/dm", "internal/durable"},
	"lvm/internal/oplock":    commands,
	"lvm/internal/thindelta": {"lvm", "lvm/tail", "internal/dm"},
	"lvm/internal/zeroed":    {"lvm", "lvm/internal/alloc"},
	"lvm/internal/reserve":   {"lvm", "lvm/internal/alloc"},
	"lvm/internal/engine":    slices.Concat(commands, []string{"lvm/internal/oplock", "lvm/internal/zeroed"}),
	"lvm/internal/wipe":      slices.Concat(changes, []string{"report"}),
	"lvm/internal/health":    slices.Concat(changes, []string{"report"}),
	"lvm/internal/thinpool":  slices.Concat(changes, []string{"lvm/internal/reserve"}),
	"lvm/internal/prepare":   slices.Concat(changes, []string{"lvm/internal/reserve", "lvm/internal/thinpool"}),
	"lvm/internal/groupsnap": changes,
	"lvm/internal/recovery":  slices.Concat(changes, []string{"report", "lvm/internal/wipe", "lvm/internal/groupsnap"}),
	"lvm/host": slices.Concat(changes, []string{"report", "lvm/internal/reserve", "lvm/internal/wipe", "lvm/internal/health",
		"lvm/internal/thinpool", "lvm/internal/prepare", "lvm/internal/groupsnap", "lvm/internal/recovery", "lvm/internal/thindelta"}),
	"node/filesystem": {"lvm", "lvm/tail", "internal/dm"},
	"node/mount":      {"lvm", "lvm/tail", "internal/dm"},
	"node/luks":       {"lvm", "lvm/tail", "internal/dm"},
	"node/disks":      {"lvm", "report", "internal/durable"},
	"node/trim":       {"lvm"},
	"move":            {"lvm"},
	"node/iolimit":    {"lvm"},
	printable:         {},
}

// shared is the vocabulary: the packages that controller, node, kube, the commands and kubectl's plugin have in common.
var shared = map[string]bool{module + "api": true, module + "lvm": true, module + "report": true, module + "pending": true}

// kubeLayers are the packages that each package of the API part may use, beside the vocabulary. What acts for one node does not know what
// acts for the cluster.
var kubeLayers = map[string][]string{
	"kube/kubeclient":    {},
	"kube/podlist":       {},
	"kube/apiproxy":      {},
	"kube/cluster":       {"kube/kubeclient"},
	"kube/nodeloss":      {"kube/cluster", "kube/kubeclient", "kube/podlist"},
	"kube/groupsnapshot": {"kube/kubeclient"},
	"kube/nodegroup":     {"kube/cluster", "kube/kubeclient"},
	"kube/claimevents":   {"kube/cluster", "kube/kubeclient", "kube/podlist"},
	"kube/scaledown":     {"kube/cluster", "kube/kubeclient"},
	"kube/move":          {"kube/kubeclient", "kube/podlist", "move"},
	"kube/fullcopy":      {"kube/kubeclient", "move"},
	"kube/attributes":    {"kube/kubeclient"},
	"kube":               {"kube/kubeclient", "kube/podlist", "kube/attributes"},
	"kube/kubetest":      {"kube/kubeclient", "lvm/lvmtest/check"},
	"kube/clustertest":   {"kube/cluster", "kube/kubeclient", "kube/kubetest", "lvm/lvmtest/check", "lvm/lvmtest/wait"},
}

// forTests are the packages outside lvm/lvmtest that only tests import.
var forTests = []string{"kube/kubetest", "kube/clustertest", "lvm/internal/fixture"}

// processes names the one file of a package that may start processes.
var processes = map[string]string{"lvm/internal/lvmcmd": "run.go", "internal/dm": "modprobe.go", "lvm/internal/thindelta": "thindelta.go", "node/luks": "cryptsetup.go"}

// dashboard is the page that kubectl's plugin serves. It reads the cluster through an interface.
const dashboard = "cmd/kubectl-nodelvm/dashboard"

// printable escapes the plugin's output.
const printable = "cmd/kubectl-nodelvm/printable"

const withClientGo = "of the driver, kube is the only package with client-go"

// forbidden says why a package must not depend on another, be it through others.
func forbidden(name, dep string, standard bool) string {
	ours := strings.HasPrefix(dep, module)
	if below, listed := layers[name]; listed {
		if !standard && !ours && name != "node/filesystem" && name != "node/mount" && (!isOrUnder(name, "lvm") && name != "node/luks" && name != "node/iolimit" && name != "internal/dm" || name == "lvm" || !isOrUnder(dep, "golang.org/x/sys")) {
			return "it needs the standard library alone; the packages under lvm, node/luks, node/iolimit and internal/dm may use golang.org/x/sys as well"
		}
		if ours && dep != module+"api" && !slices.Contains(below, strings.TrimPrefix(dep, module)) {
			return "it may use only api, " + strings.Join(below, ", ")
		}
	}
	switch name {
	case "cmd/kubectl-nodelvm", dashboard:
		if ours && !shared[dep] && (name != "cmd/kubectl-nodelvm" || dep != module+dashboard && dep != module+printable) {
			return "the plugin runs on users' machines, with the vocabulary alone"
		}
	case "internal/csihealth":
		if ours && dep != module+"lvm" && dep != module+"api" {
			return "it translates conditions of package lvm"
		}
	case "controller", "node":
		if ours && !isOrUnder(dep, module+name) && !shared[dep] && dep != module+"internal/csihealth" && (name != "node" || dep != module+"lvm/tail" && dep != module+"internal/dm") {
			return "controller and node use the vocabulary, and neither lvm/host nor each other"
		}
	}
	switch {
	case name == "cmd/nodelvm" && isOrUnder(dep, "k8s.io/client-go/informers"):
		return "the clientset and its informers would be in the memory of each node"
	case (name == "cmd/nodelvm" || name == "cmd/nodelvm-controller") && dep == "html/template":
		return "it finds methods by name, so the linker would keep all: two megabytes in the memory of each node"
	case name == "cmd/nodelvm-controller" && ours && dep != module+"internal/logs" && !isOrUnder(dep, module+"kube") && !shared[dep]:
		return "it works on the cluster, with kube and the vocabulary alone"
	}
	if allowed, listed := kubeLayers[name]; listed && ours && !shared[dep] && !slices.Contains(allowed, strings.TrimPrefix(dep, module)) {
		return "it may use the vocabulary" + strings.Join(append([]string{""}, allowed...), ", ") + " alone"
	}
	if !isOrUnder(name, "kube") && !strings.HasPrefix(name, "cmd/") && isOrUnder(dep, "k8s.io/client-go") {
		return withClientGo
	}
	return ""
}

// forbiddenDirectly says why a package must not itself import another.
func forbiddenDirectly(name, dep string) string {
	switch {
	case dep == "os/exec" && processes[name] == "":
		return "lvm/internal/lvmcmd, lvm/internal/thindelta, internal/dm and node/luks start processes, and libraries for node/mount and node/filesystem"
	case isOrUnder(dep, "k8s.io/mount-utils") && name != "node/mount", dep == "k8s.io/utils/exec" && name != "node/filesystem":
		return "node/mount mounts, and node/filesystem runs the programs of file systems"
	case isOrUnder(dep, "k8s.io/client-go") && !isOrUnder(name, "kube") && name != "cmd/kubectl-nodelvm":
		return withClientGo
	case isOrUnder(name, "kube") && (isOrUnder(dep, "google.golang.org/grpc") || isOrUnder(dep, "github.com/container-storage-interface")):
		return "kube has nothing to do with CSI"
	case (dep == module+dashboard || dep == module+printable) && name == "cmd/kubectl-nodelvm", dep == module+dashboard && name == dashboard+"/simulated":
		return ""
	case strings.HasPrefix(dep, module+"cmd/") || isOrUnder(dep, module+"lvm/lvmtest") && !isOrUnder(name, "lvm/lvmtest") && !slices.Contains(forTests, name),
		(dep == module+"kube/kubetest" || dep == module+"kube/clustertest") && name != "kube/clustertest",
		dep == module+"lvm/internal/fixture" && name != "lvm/lvmtest":
		return "only tests may import it"
	}
	return ""
}

// expectProcessesIn fails unless one file alone of a package can start a process.
func expectProcessesIn(t *testing.T, p listed, file string) {
	t.Helper()
	var runners []string
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ImportsOnly)
		must(t, err)
		for _, spec := range file.Imports {
			if spec.Path.Value == `"os/exec"` {
				runners = append(runners, name)
			}
		}
	}
	if !slices.Equal(runners, []string{file}) {
		t.Errorf("%s starts processes in %q; want %s alone", p.ImportPath, runners, file)
	}
}

func isOrUnder(path, root string) bool {
	return path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/")
}

// list asks the go command for every package of the module and everything below them.
func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-tags=grpcnotrace", "-deps",
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

// TestImportRulesCanFail shows that each rule can fail.
func TestImportRulesCanFail(t *testing.T) {
	for _, test := range []struct {
		name, dep string
		standard  bool
	}{
		{"lvm", "google.golang.org/grpc/codes", false},
		{"lvm", module + "kube", false},
		{"lvm", "golang.org/x/sys/unix", false},
		{"lvm/host", "github.com/google/go-cmp/cmp", false},
		{"lvm/internal/alloc", module + "lvm/internal/ondisk", false},
		{"internal/dm", module + "lvm/internal/ondisk", false},
		{"lvm/internal/lvmcmd", module + "lvm/host", false},
		{"controller", module + "lvm/host", false},
		{"controller", module + "node", false},
		{"node", module + "controller", false},
		{"node", module + "kube", false},
		{"node/filesystem", module + "node/mount", false},
		{"node/mount", module + "node/filesystem", false},
		{"kube", module + "kube/nodeloss", false},
		{"cmd/nodelvm", "k8s.io/client-go/informers", false},
		{"cmd/nodelvm-controller", module + "lvm/host", false},
		{"kube/kubeclient", module + "kube", false},
		{"kube", module + "controller", false},
		{"controller", "k8s.io/client-go/rest", false},
		{"report", "k8s.io/client-go/rest", false},
		{"report", module + "kube", false},
		{"api", module + "lvm", false},
		{"api", "k8s.io/api/core/v1", false},
		{"cmd/kubectl-nodelvm", module + "lvm/host", false},
		{"cmd/kubectl-nodelvm", module + "controller", false},
	} {
		if forbidden(test.name, test.dep, test.standard) == "" {
			t.Errorf("%s may depend on %s", test.name, test.dep)
		}
	}
	for _, test := range [][2]string{
		{"node", "os/exec"}, {"cmd/nodelvm", "os/exec"}, {"controller", "k8s.io/mount-utils"}, {"node", "k8s.io/mount-utils"}, {"lvm", "k8s.io/utils/exec"},
		{"cmd/nodelvm", "k8s.io/client-go/kubernetes"}, {"kube", "google.golang.org/grpc"}, {"controller", module + "lvm/lvmtest"}, {"lvm/host", module + "lvm/lvmtest/hosttest"}, {"lvm/host", module + "lvm/internal/fixture"}, {"lvm/host", "os/exec"},
	} {
		if forbiddenDirectly(test[0], test[1]) == "" {
			t.Errorf("%s may import %s", test[0], test[1])
		}
	}
}
