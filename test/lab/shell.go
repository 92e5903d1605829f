package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// shellRC gives an interactive shell a prompt that says that it is in a lab.
const shellRC = `[ -f ~/.bashrc ] && . ~/.bashrc
export PATH=%q:$PATH
PS1='(lab) \w\$ '
`

// Shell runs bash with args for a user of the cluster: in the lab's network namespace and the folder dir, with the admin's
// kubeconfig, and with kubectl, helm and the plugin kubectl-nodelvm in its PATH. If bash itself fails, the error is an
// *exec.ExitError.
func (l *Lab) Shell(ctx context.Context, dir string, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
	cmd, err := l.shell(ctx, dir, stdin, stdout, stderr, args...)
	if err != nil {
		return err
	}
	killGroup(cmd)
	return l.runCommand(cmd)
}

func (l *Lab) shell(ctx context.Context, dir string, stdin io.Reader, stdout, stderr io.Writer, args ...string) (*exec.Cmd, error) {
	tools, err := l.tools(ctx)
	if err != nil {
		return nil, err
	}
	cmd := l.command(ctx, stdin, stdout, stderr, append([]string{"bash"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Env, "NODELVM_LAB="+l.dir, "PATH="+tools+":"+os.Getenv("PATH"))
	return cmd, nil
}

// InteractiveShell runs Shell on this process's terminal, in the checkout.
func (l *Lab) InteractiveShell(ctx context.Context) error {
	tools, err := l.tools(ctx)
	if err != nil {
		return err
	}
	rc := filepath.Join(tools, "bashrc")
	if err := os.WriteFile(rc, fmt.Appendf(nil, shellRC, tools), 0o644); err != nil {
		return err
	}
	cmd, err := l.shell(ctx, l.checkout, os.Stdin, os.Stdout, os.Stderr, "--rcfile", rc, "-i")
	if err != nil {
		return err
	}
	return l.runCommand(cmd) // in the process group of the terminal
}

// tools fills the lab's folder bin with a user's commands, and returns it. It compiles the plugin of this checkout.
func (l *Lab) tools(ctx context.Context) (string, error) {
	st, err := l.clusterState()
	if err != nil {
		return "", err
	}
	helm := filepath.Join(l.cache, "tools", "helm-"+l.versions["HELM_VERSION"])
	if _, err := os.Stat(helm); errors.Is(err, fs.ErrNotExist) {
		if err := l.toolIn(ctx, "compile-helm", l.checkout, nil, "test/part.sh", "helm"); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(l.dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for name, target := range map[string]string{"kubectl": st.Binaries["kubectl"], "helm": helm} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return dir, l.toolIn(ctx, "compile-plugin", l.checkout, []string{"CGO_ENABLED=0"},
		"go", "build", "-trimpath", "-o", filepath.Join(dir, "kubectl-nodelvm"), "./cmd/kubectl-nodelvm")
}
