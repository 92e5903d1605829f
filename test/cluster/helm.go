package cluster

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

// Helm runs the Helm command against the lab. test/part.sh compiles it once, to the path that HelmPath returns.
func (c *Cluster) Helm(ctx context.Context, args ...string) error {
	path, err := HelmPath()
	if err != nil {
		return err
	}
	var said bytes.Buffer
	if err := c.Lab.Run(ctx, nil, &said, &said, append([]string{path}, args...)...); err != nil {
		return fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// HelmPath returns the path of the Helm command.
func HelmPath() (string, error) {
	top, err := Checkout()
	if err != nil {
		return "", err
	}
	version, err := Version(filepath.Join(top, "versions.env"), "HELM_VERSION")
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
