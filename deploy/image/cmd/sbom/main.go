// Command sbom lists what is in an image archive, as a CycloneDX document: the Go modules of its programs and its Debian
// packages, with their versions.
//
//	go run ./cmd/sbom ARCHIVE.tar >sbom.json
//
// A package is in the list if its entry is in Debian's, even where the image leaves out files that the driver does not need: advisories name
// packages. The command fails if the image is not wholly for one architecture.
package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/nodelvm/nodelvm/deploy/image"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom ARCHIVE.tar")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(archive string, out io.Writer) error {
	contents, err := image.Look(archive)
	if err != nil {
		return err
	}
	if err := contents.Check(); err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	encoder := cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON)
	return encoder.SetPretty(true).Encode(document(filepath.Base(archive), contents))
}

// document says the same for the same contents: it has no serial number and no time.
func document(name string, c image.Contents) *cyclonedx.BOM {
	components := map[string]cyclonedx.Component{} // by package URL
	add := func(version, purl, name string) {
		components[purl] = cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
	}
	for _, p := range c.Packages {
		add(p.Version, packagePURL(p, c.Suite), p.Name)
	}
	for _, info := range c.Binaries {
		add(c.Version, "pkg:golang/"+info.Main.Path+"@"+c.Version, info.Main.Path) // Go itself notes no version of it
		add(info.GoVersion, "pkg:golang/stdlib@"+info.GoVersion, "stdlib")
		for _, m := range info.Deps {
			m = cmp.Or(m.Replace, m)
			add(m.Version, modulePURL(m), m.Path)
		}
	}
	list := make([]cyclonedx.Component, 0, len(components))
	for _, purl := range slices.Sorted(maps.Keys(components)) {
		list = append(list, components[purl])
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: name, Type: cyclonedx.ComponentTypeContainer, Name: name, Version: c.Version,
		Properties: &[]cyclonedx.Property{{Name: "architecture", Value: c.Arch}},
	}}
	bom.Components = &list
	return bom
}

func modulePURL(m *debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

// packagePURL returns a package URL of type deb (https://github.com/package-url/purl-spec). Scanners look advisories up by the suite.
func packagePURL(p image.Package, suite string) string {
	purl := fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s", url.QueryEscape(p.Name), url.QueryEscape(p.Version), p.Arch)
	if suite != "" {
		purl += "&distro=" + suite
	}
	return purl
}
