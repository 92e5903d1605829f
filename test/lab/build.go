package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// module is a Go module whose commands the lab compiles.
type module struct {
	name     string // of its folder in the cache, and of its log
	path     string
	version  string
	staging  string            // version of Kubernetes' staging modules
	guests   []guest           // modules that are compiled with it, against its dependencies
	replace  []string          // "PATH => PATH VERSION"
	main     string            // the source of lab.test/NAME
	commands map[string]string // binary -> package
	tests    map[string]string // binary of a package's tests -> package
	ldflags  string            // in addition to the usual ones
	env      []string          // in addition to goEnv
}

// guest is a module that is compiled against another module's dependencies, so that shared packages are compiled once.
type guest struct{ path, version string }

// modules returns what the lab compiles, at the given versions.
func modules(v versions) []module {
	kubernetes := v[sidecarsKubernetes]
	const sidecars = "github.com/kubernetes-csi/"
	mods := []module{
		{
			name: "kubernetes", path: "k8s.io/kubernetes", version: kubernetes,
			guests: []guest{
				{sidecars + "external-provisioner/v6", v["CSI_PROVISIONER_VERSION"]},
				{sidecars + "external-snapshotter/v8", v["CSI_SNAPSHOTTER_VERSION"]},
			},
			commands: map[string]string{
				"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
				"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
				"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
				"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
				"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
				"csi-provisioner":         sidecars + "external-provisioner/v6/cmd/csi-provisioner",
				"csi-snapshotter":         sidecars + "external-snapshotter/v8/cmd/csi-snapshotter",
				"snapshot-controller":     sidecars + "external-snapshotter/v8/cmd/snapshot-controller",
			},
			ldflags: versionFlags(kubernetes),
		},
		{
			name: "etcd", path: "go.etcd.io/etcd/server/v3", version: v["ETCD_VERSION"],
			commands: map[string]string{"etcd": "go.etcd.io/etcd/server/v3"},
		},
		{
			name: "containerd", path: "github.com/containerd/containerd/v2", version: v["CONTAINERD_VERSION"],
			commands: map[string]string{
				"containerd":              "github.com/containerd/containerd/v2/cmd/containerd",
				"ctr":                     "github.com/containerd/containerd/v2/cmd/ctr",
				"containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
			},
		},
	}
	for i := range mods {
		mods[i].staging = v[sidecarsStaging]
	}
	if v["KUBERNETES_VERSION"] == kubernetes {
		return mods
	}
	return append(split(mods[0], v), mods[1:]...)
}

// versionFlags returns the linker flags that set the version that Kubernetes' commands report.
func versionFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const pkg = "-X k8s.io/component-base/version."
	return pkg + "gitVersion=" + version + " " + pkg + "gitMajor=" + major + " " + pkg + "gitMinor=" + minor
}

// binaries maps the name of each compiled command to its file.
type binaries map[string]string

// compile returns all commands of all modules, and compiles those that the cache lacks. It compiles the modules concurrently:
// while one waits for downloads or a linker, another one uses the processors.
func (l *Lab) compile(ctx context.Context, tell teller) (binaries, error) {
	all := binaries{}
	mods := modules(l.versions)
	total := 0
	for _, m := range mods {
		total += len(m.commands)
	}
	linked := make([]atomic.Int64, len(mods))
	dirs := make([]string, len(mods))
	errs := make([]error, len(mods))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i, m := range mods {
		wg.Go(func() {
			dir, err := l.compileModule(ctx, m, func(n int) {
				linked[i].Store(int64(n))
				tell(sum(linked), total, m.name+" "+m.version)
			})
			if err != nil {
				cancel() // the others are useless without this one
				err = fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
			}
			dirs[i], errs[i] = dir, err
		})
	}
	wg.Wait()
	if err := firstCause(errs); err != nil {
		return nil, err
	}
	for i, m := range mods {
		for command := range m.commands {
			all[command] = filepath.Join(dirs[i], command)
		}
	}
	tell(total, total, "")
	return all, nil
}

func sum(counts []atomic.Int64) int {
	n := 0
	for i := range counts {
		n += int(counts[i].Load())
	}
	return n
}

// firstCause prefers an error that does not result from the cancellation after another one.
func firstCause(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) compileModule(ctx context.Context, m module, tell func(linked int)) (string, error) {
	inputs := append([]string{
		m.version, fmt.Sprint(m.guests), m.ldflags, m.staging, strings.Join(sortedKeys(m.commands), ","),
	}, slices.Concat(sortedKeys(m.tests), m.replace, m.env)...)
	if m.main != "" {
		inputs = append(inputs, m.main)
	}
	return l.artifact(ctx, "bin-"+m.name, hash(inputs...), func(dir string) error {
		src := filepath.Join(dir, "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			return err
		}
		if err := l.writeGoMod(ctx, m, src); err != nil {
			return err
		}
		if m.main != "" {
			if err := os.WriteFile(filepath.Join(src, "main.go"), []byte(m.main), 0o644); err != nil {
				return err
			}
		}
		stop := tick(func(bool) { tell(countFiles(dir, append(sortedKeys(m.commands), sortedKeys(m.tests)...))) }, true)
		defer stop()
		for _, argv := range goCommands(m, dir) {
			if err := l.toolIn(ctx, "compile-"+m.name, src, append(slices.Clone(goEnv), m.env...), argv...); err != nil {
				return err
			}
		}
		return nil
	})
}

// goCommands returns the command lines that compile all of m into dir.
func goCommands(m module, dir string) [][]string {
	ldflags := strings.TrimSpace("-s -w " + m.ldflags)
	out := dir + "/"
	if len(m.commands) == 1 {
		out += sortedKeys(m.commands)[0] // the name of etcd's package is server
	}
	build := []string{"go", "build", "-trimpath", "-ldflags", ldflags, "-o", out}
	for _, command := range sortedKeys(m.commands) {
		build = append(build, m.commands[command])
	}
	all := [][]string{build}
	for _, test := range sortedKeys(m.tests) {
		// upstream vets its code, and vet takes as long as the compiler
		all = append(all, []string{"go", "test", "-c", "-vet=off", "-trimpath", "-ldflags", ldflags, "-o", dir + "/" + test, m.tests[test]})
	}
	return all
}

// countFiles returns how many of the files are in the folder.
func countFiles(dir string, names []string) int {
	n := 0
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			n++
		}
	}
	return n
}

// goEnv makes builds independent of the caller's settings. With GOGC=400 the compiler needs more memory, and is a twelfth faster.
var goEnv = []string{"GOGC=400", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=mod", "GOWORK=off"}

// writeGoMod writes the go.mod of a module that requires m, for its replace lines. Kubernetes replaces its staging modules by
// folders, which other repositories do not have; they are published with other versions. With guests, each dependency of m
// keeps m's version of it, even if a guest requires another.
func (l *Lab) writeGoMod(ctx context.Context, m module, src string) error {
	replace := slices.Clone(m.replace)
	if m.path == "k8s.io/kubernetes" {
		names, err := stagingModules(ctx, m)
		if err != nil {
			return err
		}
		for _, name := range names {
			replace = append(replace, name+" => "+name+" "+m.stagingVersion(name))
		}
	}
	file := filepath.Join(src, "go.mod")
	if err := os.WriteFile(file, []byte(renderGoMod(m, nil, replace)), 0o644); err != nil || len(m.guests) == 0 {
		return err
	}
	const each = `{{if not .Main}}{{.Path}} => {{with .Replace}}{{.Path}} {{.Version}}{{else}}{{.Path}} {{.Version}}{{end}}{{end}}`
	list, err := goOutput(ctx, src, "list", "-m", "-f", each, "all")
	if err != nil {
		return err
	}
	replace = nil
	for line := range strings.Lines(string(list)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, m.path+" ") {
			replace = append(replace, line)
		}
	}
	return os.WriteFile(file, []byte(renderGoMod(m, m.guests, replace)), 0o644)
}

// renderGoMod returns the text of a go.mod; replace lists modules and what replaces them as "PATH => PATH VERSION".
func renderGoMod(m module, guests []guest, replace []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module lab.test/%s\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire %s %s\n", m.name, m.path, m.version)
	for _, g := range guests {
		fmt.Fprintf(&b, "\nrequire %s %s\n", g.path, g.version)
	}
	for _, r := range replace {
		fmt.Fprintf(&b, "\nreplace %s\n", r)
	}
	return b.String()
}

// stagingModules returns the modules that Kubernetes' go.mod replaces by a folder.
func stagingModules(ctx context.Context, m module) ([]string, error) {
	var download struct{ GoMod, Error string }
	if err := goJSON(ctx, &download, "mod", "download", "-json", m.path+"@"+m.version); err != nil {
		return nil, errors.Join(err, errors.New(download.Error))
	}
	var mod struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := goJSON(ctx, &mod, "mod", "edit", "-json", download.GoMod); err != nil {
		return nil, err
	}
	var names []string
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			names = append(names, r.Old.Path)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s names no staging modules", download.GoMod)
	}
	return names, nil
}

// goJSON runs the go command outside any module and parses its output into v, even if the command fails.
func goJSON(ctx context.Context, v any, args ...string) error {
	out, err := goOutput(ctx, os.TempDir(), args...)
	return errors.Join(err, json.Unmarshal(out, v))
}

func goOutput(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), goEnv...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, err
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
