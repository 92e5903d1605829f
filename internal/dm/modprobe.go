package dm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/nodelvm/nodelvm/lvm/tail"
)

// modprobe loads a kernel module from the host's /lib/modules.
func modprobe(ctx context.Context, module string) error {
	path, err := LookPath("modprobe")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, module)
	cmd.Env = []string{"PATH=" + CommandPath, "LC_ALL=C"}
	var words tail.Buffer
	cmd.Stdout, cmd.Stderr = &words, &words
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("modprobe %s: %w: %s", module, err, words.String())
	}
	return nil
}

// LookPath finds a command on CommandPath, whatever the driver's PATH.
func LookPath(name string) (string, error) {
	for _, dir := range strings.Split(CommandPath, ":") {
		path := dir + "/" + name
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("the command %s is not installed (looked in %s)", name, CommandPath)
}

// CommandPath is the PATH to find lvm and modprobe, and their own PATH.
const CommandPath = "/usr/sbin:/usr/bin:/sbin:/bin"
