package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// MissingLibraries reads a root file system (tar or tar.gz) and returns each
// shared library that a program or library in it is linked to and that is not
// there, as "usr/sbin/mkfs.xfs needs libinih.so.1", sorted.
//
// It is the counterpart of Options.Exclude: what was left out must not be needed,
// also after the suite's packages have changed. Libraries that a program opens
// by itself (dlopen) are not seen.
func MissingLibraries(rootfs string) ([]string, error) {
	file, err := os.Open(rootfs)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var content io.Reader = file
	if strings.HasSuffix(rootfs, ".gz") {
		if content, err = gzip.NewReader(file); err != nil {
			return nil, fmt.Errorf("%s: %w", rootfs, err)
		}
	}
	present := map[string]bool{}
	needs := map[string]string{} // library -> one that needs it
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rootfs, err)
		}
		name := strings.TrimPrefix(header.Name, "./")
		present[path.Base(name)] = true
		if header.Typeflag != tar.TypeReg {
			continue
		}
		libraries, err := linkedLibraries(archive)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", rootfs, name, err)
		}
		for _, library := range libraries {
			needs[library] = name
		}
	}
	var missing []string
	for _, library := range slices.Sorted(maps.Keys(needs)) {
		if !present[library] {
			missing = append(missing, needs[library]+" needs "+library)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// linkedLibraries returns what an ELF file is linked to; a file of another kind is linked to nothing.
func linkedLibraries(r io.Reader) ([]string, error) {
	magic := make([]byte, len(elf.ELFMAG))
	if _, err := io.ReadFull(r, magic); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, nil // too short to be one
	} else if err != nil {
		return nil, err
	}
	if string(magic) != elf.ELFMAG {
		return nil, nil
	}
	rest, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	program, err := elf.NewFile(bytes.NewReader(append(magic, rest...)))
	if err != nil {
		return nil, err
	}
	return program.ImportedLibraries()
}
