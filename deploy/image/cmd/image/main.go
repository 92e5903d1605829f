// Command image builds the nodelvm container image as an archive, without a
// container engine:
//
//	cd deploy/image && go run ./cmd/image
//
// It compiles the driver and nodelvm-controller, puts them on a small Debian root file system with the
// tools that the driver runs, and prints how to use the result. The root file
// system is kept in the cache folder ($NODELVM_CACHE, else nodelvm in the user's
// cache folder), so only the first run needs a Debian mirror.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/nodelvm/nodelvm/deploy/image"
)

const repository = "ghcr.io/nodelvm/nodelvm"

type options struct {
	root    string // the checkout
	out     string
	bin     string // the folder with the static binaries; "" compiles them
	base    string // "" makes or reuses the cached one
	arch    string
	verbose bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.root, "root", "", "the checkout; found from the working directory if empty")
	flag.StringVar(&o.out, "out", "", "the archive to write; dist/nodelvm-ARCH.tar in the checkout if empty")
	flag.StringVar(&o.bin, "bin", "", "a folder with the static binaries nodelvm and nodelvm-controller; compiled from the checkout if empty")
	flag.StringVar(&o.base, "base", "", "a root file system (tar or tar.gz); made from Debian packages if empty")
	flag.StringVar(&o.arch, "arch", runtime.GOARCH, "CPU architecture in Go's words")
	flag.BoolVar(&o.verbose, "v", false, "show what mmdebstrap says")
	flag.Parse()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; all input is given by flags, see -h", flag.Arg(0))
	}
	root, err := findRoot(o.root)
	if err != nil {
		return err
	}
	version, err := readKey(filepath.Join(root, "deploy/chart/nodelvm/Chart.yaml"), "appVersion: ")
	if err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(root, "dist", "nodelvm-"+o.arch+".tar")
	}
	scratch, err := os.MkdirTemp("", "nodelvm-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	if o.base == "" {
		if o.base, err = base(ctx, root, o.arch, o.verbose); err != nil {
			return err
		}
	}
	if o.bin == "" {
		o.bin = scratch
		err := step("compile "+strings.Join(programs, " and ")+" "+version, func() error { return compile(ctx, root, o.arch, version, o.bin) })
		if err != nil {
			return err
		}
	}
	spec := driverSpec(version, o)
	var digest string
	err = step("write "+o.out, func() (err error) {
		digest, err = image.WriteDigest(spec, o.out)
		return err
	})
	if err != nil {
		return err
	}
	return printUse(os.Stdout, spec.Ref, digest, o.out)
}

// programs are the image's own, in /usr/local/bin: the driver, and what a Deployment runs for the whole cluster.
var programs = []string{"nodelvm", "nodelvm-controller"}

// driverSpec says what the driver's image holds.
func driverSpec(version string, o options) image.Spec {
	files := map[string]string{}
	for _, name := range programs {
		files["/usr/local/bin/"+name] = filepath.Join(o.bin, name)
	}
	return image.Spec{
		Ref:        repository + ":" + version,
		Base:       o.base,
		Arch:       o.arch,
		Files:      files,
		Links:      map[string]string{"/etc/mtab": "../proc/self/mounts"}, // mount(8) and mkfs look here
		Entrypoint: []string{"/usr/local/bin/nodelvm"},
		Cmd:        []string{"serve"},
		Env:        []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin", "LC_ALL=C.UTF-8"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "nodelvm",
			"org.opencontainers.image.description": "CSI driver that gives Kubernetes pods LVM volumes on their own node's disks",
			"org.opencontainers.image.version":     version,
			"org.opencontainers.image.source":      "https://github.com/nodelvm/nodelvm",
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
}

func printUse(w *os.File, ref, digest, out string) error {
	info, err := os.Stat(out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `
%s
  %s  %.1f MiB
  %s
no registry has it: import it on each node, or push it to a registry of yours
  ctr -n k8s.io images import %[4]s
  crane push %[4]s REGISTRY/nodelvm:%[5]s     # then install with --set image.repository=REGISTRY/nodelvm
`, ref, digest, float64(info.Size())/(1<<20), out, ref[strings.LastIndex(ref, ":")+1:])
	return err
}
