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
)

// module is a Go module whose commands the lab compiles.
type module struct {
	name     string // of the artifact and its log
	path     string
	version  string
	replace  []string          // modules to be taken at the version of Kubernetes' staging repositories
	commands map[string]string // binary -> package
	ldflags  string            // beyond the usual ones
}

// modules lists what is compiled, at the versions of versions.env.
func modules(v versions) []module {
	kubernetes := v["KUBERNETES_VERSION"]
	major, minor, _ := strings.Cut(strings.TrimPrefix(kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const pkg = "-X k8s.io/component-base/version."
	return []module{
		{
			name: "kubernetes", path: "k8s.io/kubernetes", version: kubernetes,
			commands: map[string]string{
				"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
				"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
				"kube-scheduler":          "k8s.io/kubernetes/cmd/kube-scheduler",
				"kubelet":                 "k8s.io/kubernetes/cmd/kubelet",
				"kubectl":                 "k8s.io/kubernetes/cmd/kubectl",
			},
			ldflags: pkg + "gitVersion=" + kubernetes + " " + pkg + "gitMajor=" + major + " " + pkg + "gitMinor=" + minor,
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
		{
			name: "csi-provisioner", path: "github.com/kubernetes-csi/external-provisioner/v6", version: v["CSI_PROVISIONER_VERSION"],
			commands: map[string]string{"csi-provisioner": "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"},
			replace: []string{
				"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/component-base", "k8s.io/apiserver",
				"k8s.io/component-helpers", "k8s.io/controller-manager", "k8s.io/csi-translation-lib",
			},
		},
	}
}

// binaries maps the name of each compiled command to its file.
type binaries map[string]string

// compile answers all commands of all modules, compiling those that the cache lacks.
func (l *Lab) compile(ctx context.Context, tell teller) (binaries, error) {
	all := binaries{}
	mods := modules(l.versions)
	total := 0
	for _, m := range mods {
		total += len(m.commands)
	}
	for _, m := range mods {
		tell(len(all), total, m.name+" "+m.version)
		dir, err := l.compileModule(ctx, m, func(command string) { tell(len(all), total, command) })
		if err != nil {
			return nil, fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
		}
		for command := range m.commands {
			all[command] = filepath.Join(dir, command)
		}
	}
	tell(total, total, "")
	return all, nil
}

func (l *Lab) compileModule(ctx context.Context, m module, tell func(command string)) (string, error) {
	key := hash(m.version, m.ldflags, l.versions["KUBERNETES_STAGING_VERSION"], strings.Join(sortedKeys(m.commands), ","))
	return l.artifact(ctx, "bin-"+m.name, key, func(dir string) error {
		src := filepath.Join(dir, "src")
		if err := os.Mkdir(src, 0o755); err != nil {
			return err
		}
		goMod, err := l.goMod(ctx, m)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(src, "go.mod"), []byte(goMod), 0o644); err != nil {
			return err
		}
		for _, command := range sortedKeys(m.commands) {
			tell(command)
			err := l.toolIn(ctx, "compile-"+m.name, src, goEnv, "go", "build", "-trimpath",
				"-ldflags", strings.TrimSpace("-s -w "+m.ldflags), "-o", filepath.Join(dir, command), m.commands[command])
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// goEnv makes builds independent of the caller's settings.
var goEnv = []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=mod", "GOWORK=off"}

// goMod writes the module that stands around m, for its replace lines:
// Kubernetes refers to its staging repositories by folder, which does not hold
// outside its own repository; they are published under a version of their own.
func (l *Lab) goMod(ctx context.Context, m module) (string, error) {
	replace := m.replace
	if m.path == "k8s.io/kubernetes" {
		var err error
		if replace, err = stagingModules(ctx, m); err != nil {
			return "", err
		}
	}
	return renderGoMod(m, replace, l.versions["KUBERNETES_STAGING_VERSION"]), nil
}

func renderGoMod(m module, replace []string, staging string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module lab.test/%s\n\ngo 1.26.0\n\ngodebug default=go1.26\n\nrequire %s %s\n", m.name, m.path, m.version)
	for _, r := range replace {
		fmt.Fprintf(&b, "\nreplace %s => %s %s\n", r, r, staging)
	}
	return b.String()
}

// stagingModules asks Kubernetes' own go.mod for the modules that it replaces by a folder.
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

// goJSON runs the go command and reads its output into v, also when it fails.
func goJSON(ctx context.Context, v any, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), goEnv...)
	cmd.Dir = os.TempDir() // outside any module
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return errors.Join(err, json.Unmarshal(out, v))
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
