package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// helm runs the Helm command against the lab. `make test-e2e` compiles it, once, where it is looked for here.
func (s *Stage) helm(ctx context.Context, args ...string) error {
	path, err := HelmPath()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	if err := s.Lab.Run(ctx, nil, &said, &said, append([]string{path}, args...)...); err != nil {
		return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// HelmPath is where Helm's command is.
func HelmPath() (string, error) {
	top, err := root()
	if err != nil {
		return "", err
	}
	version, err := versionOf(filepath.Join(top, "versions.env"), "HELM_VERSION")
	if err != nil {
		return "", err
	}
	cache := os.Getenv("NODELVM_CACHE")
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(dir, "nodelvm")
	}
	path := filepath.Join(cache, "tools", "helm-"+version)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the helm command is not in %s: run \"test/part.sh helm\", which compiles it", path)
	}
	return path, nil
}

// versionOf reads a value of versions.env.
func versionOf(file, key string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", file, key)
}
