package image

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Variants of a root file system, see mmdebstrap(1). They differ in what is there
// besides the named packages and what these depend on.
const (
	// VariantEssential adds Debian's essential packages, and runs every package's scripts.
	VariantEssential = "essential"
	// VariantExtract adds nothing and only unpacks: no script runs, so no user,
	// service or alternative is set up, and any architecture can be made anywhere.
	VariantExtract = "extract"
)

// Options change how Debian works.
type Options struct {
	// Variant is VariantEssential if empty.
	Variant string
	// Arch is the architecture in Debian's words (amd64, arm64), this machine's if empty.
	Arch string
	// Exclude has absolute paths of files to leave out; * stands for any characters, / among them (dpkg(1), --path-exclude).
	Exclude []string
	// Log gets mmdebstrap's own account of its steps while it runs.
	Log io.Writer
	// Env has variables, each "KEY=VALUE", for mmdebstrap.
	Env []string
}

// unread is what no process reads in a container. Licences stay: Debian requires them.
var unread = []string{
	"path-exclude=/usr/share/doc/*",
	"path-include=/usr/share/doc/*/copyright",
	"path-exclude=/usr/share/man/*",
	"path-exclude=/usr/share/info/*",
	"path-exclude=/usr/share/locale/*",
	"path-exclude=/usr/share/lintian/*",
	"path-exclude=/usr/share/bash-completion/*",
}

// Shell commands that mmdebstrap runs; $1 is the new root.
const (
	// mmdebstrap copies these two from the machine that it runs on.
	forgetBuilder = `rm -f "$1/etc/hostname" "$1/etc/resolv.conf"`
	// Without the loader's cache every start of a program looks for each library in
	// all places. A package's script makes it where scripts run.
	loaderCache = `echo "include /etc/ld.so.conf.d/*.conf" >"$1/etc/ld.so.conf" && ldconfig -r "$1"`
	// Vulnerability scanners read the list of packages, which unpacking alone leaves empty.
	packageList = `for deb in "$1"/var/cache/apt/archives/*.deb; do ` +
		`dpkg-deb -f "$deb" | sed "/^Package:/aStatus: install ok installed" && echo; ` +
		`done >"$1/var/lib/dpkg/status" && test -s "$1/var/lib/dpkg/status"`
)

// Debian writes a root file system with packages of a suite (such as "trixie") and
// all that they depend on to out: a tar, compressed if out ends in .gz. It takes
// a minute or more and loads packages from this machine's Debian mirror. The file
// appears under its name only when it is whole.
//
// Every file is dated SOURCE_DATE_EPOCH (Unix seconds), or Epoch without it, at the latest.
//
// It needs mmdebstrap(1). A failure carries the end of mmdebstrap's messages.
func Debian(ctx context.Context, suite string, packages []string, out string, options Options) error {
	tool, err := exec.LookPath("mmdebstrap")
	if err != nil {
		return fmt.Errorf("the root file system of %s needs mmdebstrap, which is not installed: apt-get install mmdebstrap (%w)", suite, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	tmp := out + ".tmp"
	if err := options.run(ctx, tool, options.args(suite, packages), tmp, strings.HasSuffix(out, ".gz")); err != nil {
		return errors.Join(fmt.Errorf("root file system of %s with %s: %w", suite, strings.Join(packages, " "), err), os.Remove(tmp))
	}
	return os.Rename(tmp, out)
}

// args is mmdebstrap's command line; the tar goes to standard output.
func (o Options) args(suite string, packages []string) []string {
	args := []string{
		"--variant=" + cmp.Or(o.Variant, VariantEssential),
		"--format=tar",
		"--include=" + strings.Join(packages, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		"--skip=output/dev", // a container runtime brings its own /dev
	}
	if o.Arch != "" {
		args = append(args, "--architectures="+o.Arch)
	}
	for _, rule := range unread {
		args = append(args, "--dpkgopt="+rule)
	}
	for _, pattern := range o.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+pattern)
	}
	hook := "--customize-hook="
	if o.Variant == VariantExtract {
		hook = "--extract-hook=" // the only one that this variant runs
		args = append(args, hook+loaderCache, hook+packageList)
	}
	args = append(args, hook+forgetBuilder)
	return append(args, suite, "-")
}

// run starts mmdebstrap and stores its standard output in the file at path.
func (o Options) run(ctx context.Context, tool string, args []string, path string, compress bool) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var sink io.WriteCloser = file
	if compress {
		zip := gzip.NewWriter(file)
		defer func() { err = errors.Join(zip.Close(), err) }()
		sink = zip
	}
	var messages tail
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C.UTF-8"), o.Env...)
	if os.Getenv("SOURCE_DATE_EPOCH") == "" {
		cmd.Env = append(cmd.Env, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", Epoch.Unix()))
	}
	cmd.Stdout = sink
	cmd.Stderr = &messages
	if o.Log != nil {
		cmd.Stderr = io.MultiWriter(o.Log, &messages)
	}
	// An interrupt lets mmdebstrap undo its mounts and remove its temporary tree.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, messages.String())
	}
	return nil
}

// tail keeps the end of what is written to it: enough to see why a command failed.
type tail struct{ buf bytes.Buffer }

const tailBytes = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.buf.Write(p)
	if extra := t.buf.Len() - tailBytes; extra > 0 {
		t.buf.Next(extra)
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.TrimSpace(t.buf.String()) }
