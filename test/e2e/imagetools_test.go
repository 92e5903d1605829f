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

// Folders of the unpacked driver's image and its tools in a node.
const (
	imageInNode = "/mnt/lab/image"
	toolsInNode = "/mnt/lab/image-tools"
)

// imageTools are the programs that the Node service runs. The node's own are from another Debian suite, with other versions.
var imageTools = []string{
	"blkid", "wipefs", "mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fsck.ext4", "resize2fs", "xfs_growfs", "btrfs",
	"cryptsetup",
}

// unpackTools makes a folder of the image's tools on the nodes' share. The tools run in the node with the image's libraries.
func unpackTools(t *testing.T, l *lab.Lab, root string) {
	t.Helper()
	dir := filepath.Join(l.Share(), filepath.Base(toolsInNode))
	must(t, os.MkdirAll(dir, 0o755))
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

// unpackImage unpacks the root of the driver's image on the nodes' share, where a node has it at imageInNode.
func unpackImage(t *testing.T, l *lab.Lab) (root string) {
	t.Helper()
	base, err := l.DriverBase(t.Context(), l.Arch())
	must(t, err)
	root = filepath.Join(l.Share(), filepath.Base(imageInNode))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	must(t, os.MkdirAll(root, 0o755))
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", base, "-C", root, "--exclude=dev/*").CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return root
}
