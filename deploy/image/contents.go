package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Contents is what an image archive holds, as far as people ask about it.
type Contents struct {
	Arch     string                      // that its configuration tells, in Go's words
	Version  string                      // of its label versionLabel
	Suite    string                      // Debian's, such as trixie
	Machines map[elf.Machine]int         // how many programs and libraries for each kind of processor
	Binaries map[string]*debug.BuildInfo // Go programs by their path
	Packages []Package                   // Debian's, in the order of their list
}

// Package is one Debian package.
type Package struct{ Name, Version, Arch string }

// packageStatus is where Debian keeps the list of what is installed, and osRelease where it describes itself (os-release(5)).
const (
	packageStatus = "var/lib/dpkg/status"
	osRelease     = "usr/lib/os-release"
)

// versionLabel is the label of an image's version.
const versionLabel = "org.opencontainers.image.version"

// Look reads what is really in the archive: nothing is taken from what it was made of.
func Look(archive string) (Contents, error) {
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		return Contents{}, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return Contents{}, err
	}
	c := Contents{Arch: config.Architecture, Version: config.Config.Labels[versionLabel], Machines: map[elf.Machine]int{}, Binaries: map[string]*debug.BuildInfo{}}
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return Contents{}, fmt.Errorf("%s: %w", archive, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := c.add(path.Clean(header.Name), r); err != nil {
			return Contents{}, fmt.Errorf("%s: %s: %w", archive, header.Name, err)
		}
	}
}

// add takes one file in.
func (c *Contents) add(name string, content io.Reader) error {
	reader := bufio.NewReader(content)
	magic, err := reader.Peek(len(elf.ELFMAG))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case name == packageStatus:
		c.Packages, err = parsePackages(reader)
		return err
	case name == osRelease:
		c.Suite, err = parseSuite(reader)
		return err
	case string(magic) != elf.ELFMAG:
		return nil
	}
	data, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return err
	}
	c.Machines[file.Machine]++
	if info, err := buildinfo.Read(bytes.NewReader(data)); err == nil { // else it is no Go program
		c.Binaries["/"+name] = info
	}
	return nil
}

// parseSuite returns the code name in an os-release file.
func parseSuite(content io.Reader) (suite string, err error) {
	lines := bufio.NewScanner(content)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "VERSION_CODENAME="); ok {
			suite = strings.Trim(value, `"`)
		}
	}
	return suite, lines.Err()
}

// parsePackages reads Debian's list of packages: stanzas of "Field: value" with an empty line between them.
func parsePackages(content io.Reader) (packages []Package, err error) {
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, 1<<20)
	var p Package
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "Package":
			p = Package{Name: value}
			packages = append(packages, p)
		case "Version":
			packages[len(packages)-1].Version = value
		case "Architecture":
			packages[len(packages)-1].Arch = value
		}
		if len(packages) == 0 {
			return nil, fmt.Errorf("a list of packages that begins with %q", lines.Text())
		}
	}
	return packages, lines.Err()
}

// machines are the kinds of processor by Go's words.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Check fails unless everything in the image is for the one architecture that it says, and it has Go programs and packages.
func (c Contents) Check() error {
	machine, known := machines[c.Arch]
	switch {
	case !known:
		return fmt.Errorf("the architecture %q is not one of ours", c.Arch)
	case len(c.Machines) != 1 || c.Machines[machine] == 0:
		return fmt.Errorf("an image for %s holds programs for %v", c.Arch, c.Machines)
	case len(c.Binaries) == 0 || len(c.Packages) == 0:
		return fmt.Errorf("the image holds %d Go programs and %d packages", len(c.Binaries), len(c.Packages))
	}
	debian := debianArch(c.Arch)
	if at := slices.IndexFunc(c.Packages, func(p Package) bool { return p.Arch != debian && p.Arch != "all" }); at >= 0 {
		return fmt.Errorf("an image for %s holds the package %v", c.Arch, c.Packages[at])
	}
	return nil
}
