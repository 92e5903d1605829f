package image

import (
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const status = "Package: lvm2\nStatus: install ok installed\nVersion: 2.03.31-2\nArchitecture: amd64\n\n" +
	"Package: base-files\nVersion: 13\nDescription: files\n of the base\nArchitecture: all\n\n"

// inside writes an image with this test's own program, and Debian's list of packages.
func inside(t *testing.T, arch, packages string) string {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	list := filepath.Join(t.TempDir(), "status")
	must(t, os.WriteFile(list, []byte(packages), 0o600))
	out := filepath.Join(t.TempDir(), "image.tar")
	spec := Spec{Ref: "a.example/b:c", Arch: arch, Files: map[string]string{"/usr/bin/nodelvm": program, "/var/lib/dpkg/status": list}}
	must(t, Write(spec, out))
	return out
}

func TestLook(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Fatalf("this test's own program is for %s; it expects amd64", runtime.GOARCH)
	}
	c, err := Look(inside(t, "amd64", status))
	must(t, err)
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if info := c.Binaries["/usr/bin/nodelvm"]; info == nil || info.GoVersion != runtime.Version() || c.Machines[elf.EM_X86_64] != 1 {
		t.Errorf("programs %v, built by %v", c.Machines, info)
	}
	if len(c.Packages) != 2 || c.Packages[0] != (Package{"lvm2", "2.03.31-2", "amd64"}) || c.Packages[1] != (Package{"base-files", "13", "all"}) {
		t.Errorf("packages %v", c.Packages)
	}
}

func TestCheckRefusesAMixture(t *testing.T) {
	for name, test := range map[string]struct{ arch, packages, says string }{
		"program of another kind": {"arm64", status, "holds programs for"},
		"package of another kind": {"amd64", strings.ReplaceAll(status, "amd64", "arm64"), "{lvm2 2.03.31-2 arm64}"},
		"no packages":             {"amd64", "", "0 packages"},
		"unknown":                 {"riscv64", status, "not one of ours"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Look(inside(t, test.arch, test.packages))
			must(t, err)
			if err := c.Check(); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v, want one that says %q", err, test.says)
			}
		})
	}
}
