package image

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// writeFilesLayer writes spec's directories, files and links as a compressed tar:
// sorted by path, owned by root, dated Epoch.
func writeFilesLayer(spec Spec, out string) (err error) {
	entries, err := layerEntries(spec)
	if err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zip := gzip.NewWriter(file)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		if err := e.writeTo(archive); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return errors.Join(archive.Close(), zip.Close())
}

// entry is one path of the files layer.
type entry struct {
	name   string // relative to the image's root, as tar wants it
	kind   byte   // tar.TypeDir, tar.TypeReg or tar.TypeSymlink
	source string // a file's content, or a link's target
}

// layerEntries lists what the files layer holds, parents before children.
//
// Parents that are not named are left out on purpose: an entry for /usr/bin
// would replace the mode that the base gave it, and one for /bin would replace
// Debian's symbolic link. Container runtimes make missing parents themselves.
func layerEntries(spec Spec) ([]entry, error) {
	byName := map[string]entry{}
	add := func(name string, kind byte, source string) error {
		clean := path.Clean(name)
		if !path.IsAbs(name) || clean == "/" {
			return fmt.Errorf("path %q in the image must be absolute and below /", name)
		}
		e := entry{name: strings.TrimPrefix(clean, "/"), kind: kind, source: source}
		if _, twice := byName[e.name]; twice {
			return fmt.Errorf("path %q is named twice", clean)
		}
		byName[e.name] = e
		return nil
	}
	var errs []error
	for _, dir := range spec.Dirs {
		errs = append(errs, add(dir, tar.TypeDir, ""))
	}
	for name, source := range spec.Files {
		errs = append(errs, add(name, tar.TypeReg, source))
	}
	for name, target := range spec.Links {
		errs = append(errs, add(name, tar.TypeSymlink, target))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(byName))
	entries := make([]entry, 0, len(names))
	for _, name := range names {
		entries = append(entries, byName[name])
	}
	return entries, nil
}

// writeTo appends the entry to archive, reading a file's content as it goes.
func (e entry) writeTo(archive *tar.Writer) error {
	header := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o755, ModTime: Epoch, Format: tar.FormatPAX}
	switch e.kind {
	case tar.TypeDir:
		header.Name += "/"
		return archive.WriteHeader(header)
	case tar.TypeSymlink:
		header.Mode, header.Linkname = 0o777, e.source
		return archive.WriteHeader(header)
	}
	source, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", e.source)
	}
	header.Size = info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, source)
	return err
}
