//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/test/lab"
)

// Where a node finds the driver's image, unpacked, and its tools.
const (
	imageInNode = "/mnt/lab/image"
	toolsInNode = "/mnt/lab/image-tools"
)

// imageTools are what the Node service runs. The node's own are of another suite of Debian, and so of other versions.
var imageTools = []string{
	"blkid", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fsck.ext4", "resize2fs", "xfs_growfs", "btrfs",
	"cryptsetup",
}

// unpackTools unpacks the root of the driver's image on the nodes' share. The tools run in the node, with the libraries
// that they have in the image.
func unpackTools(t *testing.T, l *lab.Lab) {
	t.Helper()
	base, err := l.DriverBase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, dir := filepath.Join(l.Share(), filepath.Base(imageInNode)), filepath.Join(l.Share(), filepath.Base(toolsInNode))
	for _, made := range []string{root, dir} {
		if err := os.MkdirAll(made, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", base, "-C", root, "--exclude=dev/*").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib*/ld-linux-*.so.*"))
	libraries, globErr := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu"))
	if err != nil || globErr != nil || len(loaders) == 0 || len(libraries) != 1 {
		t.Fatalf("the image has the loaders %q and the libraries %q", loaders, libraries)
	}
	inNode := func(path string) string { return imageInNode + strings.TrimPrefix(path, root) }
	for _, tool := range imageTools {
		path, err := filepath.Glob(filepath.Join(root, "usr/*bin", tool))
		if err != nil || len(path) != 1 {
			t.Fatalf("the image has %d of %s", len(path), tool)
		}
		script := fmt.Sprintf("#!/bin/sh\nexec %s --library-path %s %s \"$@\"\n", inNode(loaders[0]), inNode(libraries[0]), inNode(path[0]))
		if err := os.WriteFile(filepath.Join(dir, tool), []byte(script), 0o755); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
}
