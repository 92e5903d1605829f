package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const karpenterPath = "sigs.k8s.io/karpenter"

// karpenterModule returns the module of Karpenter with its provider kwok, whose machines are Node objects without a kubelet.
func karpenterModule(v versions) module {
	return module{
		name: "karpenter", path: karpenterPath, version: v["KARPENTER_VERSION"],
		commands: map[string]string{"karpenter": karpenterPath + "/kwok"},
	}
}

// Karpenter returns the file of Karpenter's command and those of its CustomResourceDefinitions. It first compiles what the cache
// lacks, which takes minutes.
func (l *Lab) Karpenter(ctx context.Context) (binary string, crds []string, err error) {
	if err := errors.Join(l.versions.need("KARPENTER_VERSION"), os.MkdirAll(l.Logs(), 0o755)); err != nil {
		return "", nil, err
	}
	m := karpenterModule(l.versions)
	dir, err := l.compileModule(ctx, m, func(int) {})
	if err != nil {
		return "", nil, fmt.Errorf("compile %s %s: %w", m.name, m.version, err)
	}
	crds, err = m.files(ctx, "pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml")
	return filepath.Join(dir, "karpenter"), crds, err
}

// files returns the files of the module's source that match the patterns, each of which must match one.
func (m module) files(ctx context.Context, patterns ...string) (all []string, err error) {
	var download struct{ Dir, Error string }
	if err := goJSON(ctx, &download, "mod", "download", "-json", m.path+"@"+m.version); err != nil {
		return nil, errors.Join(err, errors.New(download.Error))
	}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(download.Dir, pattern))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s %s has no %s", m.path, m.version, pattern)
		}
		all = append(all, files...)
	}
	return all, nil
}
