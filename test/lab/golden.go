package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

//go:embed files/golden.sh
var goldenScript string

// nodeBinaries are the compiled programs of a worker.
var nodeBinaries = []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr"}

// goldenImage returns the root image of the workers: the Debian node with kubelet, containerd and all container images of the lab.
// It boots the golden node to build it, so that containerd itself imports the images.
func (l *Lab) goldenImage(ctx context.Context, root string, bin binaries, images []string) (string, error) {
	files := append([]string{}, images...)
	for _, b := range nodeBinaries {
		files = append(files, bin[b])
	}
	key := hash(append(files, root, goldenScript, l.pauseImage())...)
	dir, err := l.artifact(ctx, "golden", key, func(dir string) (err error) {
		image := filepath.Join(dir, "root.img")
		if err := l.tool(ctx, "golden-image", "cp", "--sparse=always", root, image); err != nil {
			return err
		}
		err = errors.Join(
			l.writeNodeFiles(ctx), l.writeContainerdConfig(),
			os.WriteFile(filepath.Join(l.systemDir(), "prepare-golden.sh"), []byte(goldenScript), 0o755),
			l.createNamespace(ctx, []node{golden}),
		)
		if err == nil {
			err = l.prepareGolden(ctx, image, files)
		}
		if err := errors.Join(err, l.killNode(golden.name()), l.deleteNamespace(context.WithoutCancel(ctx))); err != nil {
			return err
		}
		return l.tool(ctx, "golden-image", "e2fsck", "-fn", image)
	})
	return filepath.Join(dir, "root.img"), err
}

// prepareGolden boots the golden node from image, runs prepare-golden.sh with the files in it, and halts it cleanly.
func (l *Lab) prepareGolden(ctx context.Context, image string, files []string) error {
	m := l.machine(golden, roleGolden, "")
	m.rootDisk = image
	if err := l.boot(ctx, m); err != nil {
		return err
	}
	defer l.forgetConnection(golden.name())
	argv := []string{"sh", "/mnt/lab/.lab/prepare-golden.sh", l.cache}
	for _, f := range files {
		inside, err := filepath.Rel(l.cache, f)
		if err != nil {
			return err
		}
		argv = append(argv, inside)
	}
	log, err := os.Create(l.logFile("golden-image"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	code, err := l.exec(ctx, golden.name(), nil, log, log, argv...)
	if err != nil || code != 0 {
		return l.logged("golden-image", fmt.Errorf("%s: exit code %d: %w", strings.Join(argv[:2], " "), code, err))
	}
	// The connection breaks when the node halts; waitStopped checks that it does.
	_, _ = l.exec(ctx, golden.name(), nil, log, log, "busybox", "poweroff", "-f")
	return l.waitStopped(ctx, golden.name())
}

func (l *Lab) waitStopped(ctx context.Context, name string) error {
	for deadline := time.Now().Add(30 * time.Second); l.alive(name); {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return l.logged(name, fmt.Errorf("%s did not halt within 30 s", name))
		}
	}
	return nil
}
