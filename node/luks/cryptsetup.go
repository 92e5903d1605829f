package luks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/tail"
)

// linux is the machine of this node.
type linux struct {
	runCommand func(*exec.Cmd) error // set by tests; nil: (*exec.Cmd).Run
}

// Exit codes of cryptsetup (cryptsetup(8), "RETURN CODES").
const (
	exitWrongKey = 2
	exitMemory   = 3
	exitBusy     = 5
)

// exitError is the failure of a cryptsetup.
type exitError struct {
	name  string
	code  int // -1: it was killed
	words string
}

func (e *exitError) Error() string {
	if e.code < 0 {
		return fmt.Sprintf("cryptsetup %s was killed: %s", e.name, e.words)
	}
	return fmt.Sprintf("cryptsetup %s: exit status %d: %s", e.name, e.code, e.words)
}

// cryptsetup runs a command. The command inherits the lock, and continues if ctx ends. Of the driver's environment it gets only
// what is named here.
func (m linux) cryptsetup(ctx context.Context, lock *os.File, args []string, keys ...*Key) error {
	path, err := exec.LookPath("cryptsetup")
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "encrypted volumes need cryptsetup, which is not in the driver's image: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, append(args[:1:1], append(common, args[1:]...)...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "DM_DISABLE_UDEV=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the driver's process group does not end it
	cmd.ExtraFiles = []*os.File{lock}
	var words tail.Buffer
	cmd.Stdout, cmd.Stderr = &words, &words
	for i, key := range keys {
		pipe, err := keyPipe(key)
		if err != nil {
			return err
		}
		defer func() { _ = pipe.Close() }()
		if i == 0 {
			cmd.Stdin = pipe
		} else {
			cmd.ExtraFiles = append(cmd.ExtraFiles, pipe)
		}
	}
	if m.runCommand == nil {
		err = cmd.Run()
	} else {
		err = m.runCommand(cmd)
	}
	if err := commandError(args, words.Line(), err); err != nil {
		return err
	}
	if strings.HasPrefix(args[0], "luks") { // it wrote a header that the next step needs
		if err := lock.Sync(); err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot flush the LUKS header: %w", err)
		}
	}
	return nil
}

// keyPipe returns a pipe with a key. The kernel keeps the key in memory until cryptsetup reads it; maxKey is less than a pipe's
// buffer.
func keyPipe(k *Key) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot pass the key to cryptsetup: %w", err)
	}
	_, err = w.Write(k.secret)
	if err = errors.Join(err, w.Close()); err != nil {
		_ = r.Close()
		return nil, lvm.Errorf(lvm.KindInternal, "cannot pass the key to cryptsetup: %w", err)
	}
	return r, nil
}

// commandError returns a command's failure with its kind.
func commandError(args []string, words string, err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return lvm.Errorf(lvm.KindInternal, "cryptsetup %s: %w", args[0], err)
	}
	e := &exitError{args[0], exit.ExitCode(), words}
	target := args[len(args)-1]
	switch {
	case e.code < 0:
		e.words = strings.TrimSpace(exit.String() + " " + e.words)
		return lvm.Errorf(lvm.KindInternal, "%w; if the container ran out of memory, raise its limit: a passphrase needs %d MiB", e, argonMemory>>10)
	case e.code == exitMemory:
		return lvm.Errorf(lvm.KindInternal, "%w; raise the container's memory limit: a passphrase needs %d MiB", e, argonMemory>>10)
	case e.code == exitBusy:
		return lvm.Errorf(lvm.KindInUse, "%w; another program uses %s: see lsblk and dmsetup ls --tree", e, target)
	}
	return lvm.Errorf(lvm.KindInternal, "%w", e)
}
