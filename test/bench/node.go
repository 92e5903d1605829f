package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	group     = "bench"
	systemDir = "/run/nodelvm/lvm" // where the driver writes its lvm.conf
)

// disks are the lab node's two blank disks; Measure overwrites them.
var disks = []string{"/dev/ubdb", "/dev/ubdc"}

// node is the machine on which Measure runs.
type node struct {
	scratch string // a folder on the node's own disk
	root    string // the image's root file system in scratch
	say     func(format string, args ...any)
}

// unpack extracts the layers of the image, a docker-archive, and mounts the host folders that its container has.
func (n *node) unpack(ctx context.Context, archive string) error {
	layers, err := layersOf(ctx, archive)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.root, 0o755); err != nil {
		return err
	}
	for _, layer := range layers {
		if err := n.admin(ctx, "sh", "-c", `tar -xOf "$1" "$2" | tar -xz -C "$3"`, "unpack", archive, layer, n.root); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev", "/sys", "/proc", "/run/lock", "/lib/modules"} {
		at := filepath.Join(n.root, dir)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s into the image: %w", dir, err)
		}
	}
	return nil
}

// command is a program of the node, or of the image, with its arguments.
type command struct {
	argv []string
	root string // "" for the node's own
	env  []string
}

// stock returns a command as an admin runs it.
func (n *node) stock(argv ...string) command { return command{argv: argv, env: os.Environ()} }

// tuned returns the same command for the image's LVM with the driver's configuration, limited to the group's disks.
func (n *node) tuned(argv ...string) command {
	argv = append([]string{"/usr/sbin/lvm", argv[0], "--devices", strings.Join(disks, ",")}, argv[1:]...)
	return command{argv: argv, root: n.root, env: []string{"PATH=/usr/sbin:/usr/bin", "LC_ALL=C", "LVM_SUPPRESS_FD_WARNINGS=1", "LVM_SYSTEM_DIR=" + systemDir}}
}

func (c command) cmd(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = c.env
	if c.root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root}
		cmd.Dir = "/"
	}
	return cmd
}

// run runs a command and waits for it. An error contains its output.
func (n *node) run(ctx context.Context, c command) error {
	out, err := c.cmd(ctx).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func (n *node) admin(ctx context.Context, argv ...string) error { return n.run(ctx, n.stock(argv...)) }

// version returns the first line of `lvm version`.
func (n *node) version(ctx context.Context, c command) (string, error) {
	out, err := c.cmd(ctx).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(c.argv, " "), err)
	}
	_, version, _ := strings.Cut(string(out), "LVM version:")
	version, _, _ = strings.Cut(strings.TrimSpace(version), "\n")
	return version, nil
}

// newGroup removes the group and creates a new one, with extents of 4 MiB, and metadata areas for a few thousand volumes.
func (n *node) newGroup(ctx context.Context) error {
	if err := n.admin(ctx, "vgremove", "-qq", "-ff", "-y", "-S", "vg_name="+group); err != nil {
		return err
	}
	if err := os.RemoveAll("/dev/" + group); err != nil { // links of volumes that udev does not know
		return err
	}
	return n.admin(ctx, append([]string{"vgcreate", "-qq", "-y", "-s", "4m", "--metadatasize", "64m", group}, disks...)...)
}

// facts writes what a reader of the figures must know: the versions of LVM and of the kernel.
func (n *node) facts(ctx context.Context, out io.Writer) error {
	stock, err := n.version(ctx, n.stock("lvm", "version"))
	if err != nil {
		return err
	}
	image := n.tuned("version")
	image.argv = image.argv[:2]
	tuned, err := n.version(ctx, image)
	if err != nil {
		return err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "goos: linux\ngoarch: amd64\npkg: github.com/nodelvm/nodelvm/test/bench\nlvm-stock: %s\nlvm-image: %s\nkernel: user-mode Linux %s\n",
		stock, tuned, unix.ByteSliceToString(kernel.Release[:]))
	return err
}

// timed returns how long do took.
func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

// layersOf returns the names of a docker-archive's layers, lowest first.
func layersOf(ctx context.Context, archive string) ([]string, error) {
	out, err := exec.CommandContext(ctx, "tar", "-xOf", archive, "manifest.json").Output()
	if err != nil {
		return nil, fmt.Errorf("the image %s: %w", archive, err)
	}
	_, list, ok := strings.Cut(string(out), `"Layers":[`)
	list, _, _ = strings.Cut(list, "]")
	if !ok || list == "" {
		return nil, errors.New("the image has no layers")
	}
	var layers []string
	for _, quoted := range strings.Split(list, ",") {
		layers = append(layers, strings.Trim(quoted, `" `))
	}
	return layers, nil
}
