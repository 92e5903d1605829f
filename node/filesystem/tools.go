package filesystem

import (
	"context"
	"fmt"
	"io"
	"os"

	"k8s.io/utils/exec"

	"github.com/nodelvm/nodelvm/lvm/tail"
)

// Tools works on the content of block devices with the programs of this machine. None of its methods decides anything. Its errors are complete
// sentences for a user.
type Tools struct{ Exec exec.Interface }

// New returns the Tools of this machine.
func New() Tools { return Tools{exec.New()} }

// run runs a tool in the C locale, and returns the end of what it printed on both streams, as one line. A volume's content decides how
// much a tool prints: e2fsck has a line for each inode that it repairs.
func (Tools) run(cmd exec.Cmd) (words string, err error) {
	var printed tail.Buffer
	cmd.SetStdout(&printed)
	cmd.SetStderr(&printed)
	cmd.SetEnv(append(os.Environ(), "LC_ALL=C"))
	err = cmd.Run()
	return printed.Line(), err
}

// maxListing limits what blkid and wipefs print about one device, in bytes. They print some hundred bytes for each signature.
const maxListing = 1 << 20

// listing is a writer that keeps maxListing bytes, and counts the rest.
type listing struct {
	kept []byte
	rest int
}

func (l *listing) Write(p []byte) (int, error) {
	fits := min(len(p), maxListing-len(l.kept))
	l.kept, l.rest = append(l.kept, p[:fits]...), l.rest+len(p)-fits
	return len(p), nil
}

// ReadFrom implements io.ReaderFrom.
func (l *listing) ReadFrom(r io.Reader) (int64, error) { return tail.Copy(l, r) }

// stdout runs a tool that only reads; the end of its error messages becomes part of the error. More output than maxListing is an error: a
// part of a list would hide a signature.
func (m Tools) stdout(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := m.Exec.CommandContext(ctx, name, args...)
	var stdout listing
	var stderr tail.Buffer
	cmd.SetStdout(&stdout)
	cmd.SetStderr(&stderr)
	cmd.SetEnv(append(os.Environ(), "LC_ALL=C"))
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w %s", err, stderr.Line())
	}
	if stdout.rest > 0 {
		return nil, fmt.Errorf("it printed %d bytes more than %d", stdout.rest, maxListing)
	}
	return stdout.kept, nil
}
