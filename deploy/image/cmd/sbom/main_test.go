package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/deploy/image"
)

func TestListsModulesAndPackages(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	list, release, archive := filepath.Join(dir, "status"), filepath.Join(dir, "os-release"), filepath.Join(dir, "nodelvm-amd64.tar")
	for path, text := range map[string]string{
		list:    "Package: lvm2\nVersion: 2.03.31-2\nArchitecture: amd64\n\nPackage: libstdc++6\nVersion: 2:14+b1\nArchitecture: amd64\n",
		release: "NAME=\"Debian GNU/Linux\"\nVERSION_CODENAME=trixie\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spec := image.Spec{
		Ref: "a.example/b:c", Arch: "amd64", Labels: map[string]string{"org.opencontainers.image.version": "v7"},
		Files: map[string]string{"/nodelvm": program, "/var/lib/dpkg/status": list, "/usr/lib/os-release": release},
	}
	if err := image.Write(spec, archive); err != nil {
		t.Fatal(err)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(archive, out); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("two runs differ")
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(first.Bytes(), &bom); err != nil {
		t.Fatal(err)
	}
	found := ""
	for _, c := range bom.Components {
		found += c.PURL + "\n"
	}
	for _, want := range []string{
		"pkg:deb/debian/lvm2@2.03.31-2?arch=amd64&distro=trixie\n", "pkg:deb/debian/libstdc%2B%2B6@2%3A14%2Bb1?arch=amd64&distro=trixie\n",
		"pkg:golang/github.com/nodelvm/nodelvm/deploy/image@v7\n", "pkg:golang/stdlib@go", "pkg:golang/github.com/CycloneDX/cyclonedx-go@v",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%s lacks %s", found, want)
		}
	}
	if bom.BOMFormat != "CycloneDX" {
		t.Errorf("format %q", bom.BOMFormat)
	}
}
