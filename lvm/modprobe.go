package lvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// modprobe loads a kernel module, from the host's /lib/modules.
func modprobe(ctx context.Context, module string) error {
	path, err := lookPath("modprobe")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, module)
	cmd.Env = []string{"PATH=" + commandPath, "LC_ALL=C"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("modprobe %s: %w: %s", module, err, bytes.TrimSpace(out))
	}
	return nil
}

// lookPath finds a command on commandPath, whatever our own PATH is.
func lookPath(name string) (string, error) {
	for _, dir := range strings.Split(commandPath, ":") {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("the command %s is not installed (looked in %s)", name, commandPath)
}

// commandPath is where lvm and modprobe are looked for, by us and by the commands themselves.
const commandPath = "/usr/sbin:/usr/bin:/sbin:/bin"
