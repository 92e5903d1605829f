package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const ref = "ghcr.io/nodelvm/nodelvm:v0.1.0"

// fixture is a spec with every part in use, over real files under a fresh folder.
func fixture(t *testing.T) Spec {
	t.Helper()
	dir := t.TempDir()
	base := filepath.Join(dir, "base.tar")
	writeTar(t, base, map[string]string{"etc/os-release": "ID=debian\n", "usr/bin/sh": "#!"})
	program := filepath.Join(dir, "program")
	must(t, os.WriteFile(program, []byte("\x7fELF program"), 0o600))
	return Spec{
		Ref: ref, Base: base, Arch: "amd64",
		Files:      map[string]string{"/usr/local/bin/nodelvm": program, "/a": program},
		Links:      map[string]string{"/etc/mtab": "../proc/self/mounts"},
		Dirs:       []string{"/var/lib/nodelvm"},
		Entrypoint: []string{"/usr/local/bin/nodelvm"}, Cmd: []string{"serve"},
		Env: []string{"PATH=/usr/sbin"}, User: "0", WorkingDir: "/", Labels: map[string]string{"a": "b"},
	}
}

func writeTar(t *testing.T, path string, files map[string]string) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for name, content := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	must(t, errors.Join(w.Close(), os.WriteFile(path, buf.Bytes(), 0o600)))
}

func load(t *testing.T, path string) v1.Image {
	t.Helper()
	img, err := tarball.ImageFromPath(path, nil)
	must(t, err)
	return img
}

func TestWrittenArchiveIsAValidImage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "new", "image.tar")
	digest, err := WriteDigest(fixture(t), out)
	must(t, err)
	img := load(t, out)
	if err := validate.Image(img); err != nil {
		t.Errorf("layers, sizes and digests disagree: %v", err)
	}
	if got, err := img.Digest(); err != nil || got.String() != digest {
		t.Errorf("the archive's digest is %v (%v), WriteDigest said %s", got, err, digest)
	}
	config, err := img.ConfigFile()
	must(t, err)
	if config.OS != "linux" || config.Architecture != "amd64" || !config.Created.Equal(Epoch) {
		t.Errorf("platform %s/%s created %v", config.OS, config.Architecture, config.Created)
	}
	c := config.Config
	if !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/nodelvm"}) || !slices.Equal(c.Cmd, []string{"serve"}) ||
		!slices.Equal(c.Env, []string{"PATH=/usr/sbin"}) || c.User != "0" || c.WorkingDir != "/" || c.Labels["a"] != "b" {
		t.Errorf("configuration %+v is not the spec's", c)
	}
	if len(config.RootFS.DiffIDs) != 2 || len(config.History) != 2 {
		t.Errorf("%d layers with %d lines of history, want 2 of each", len(config.RootFS.DiffIDs), len(config.History))
	}
}

// TestArchiveHasDockersShape reads the archive as docker load does, without the
// library that wrote it.
func TestArchiveHasDockersShape(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	must(t, Write(fixture(t), out))
	entries := readTar(t, out)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	must(t, json.Unmarshal(entries["manifest.json"], &manifest))
	if len(manifest) != 1 || !slices.Equal(manifest[0].RepoTags, []string{ref}) {
		t.Fatalf("manifest %+v, want one image with the tag %s", manifest, ref)
	}
	for _, name := range append(manifest[0].Layers, manifest[0].Config) {
		content, ok := entries[name]
		if !ok {
			t.Errorf("the manifest names %s, which is not there", name)
		}
		sum := fmt.Sprintf("%x", sha256.Sum256(content))
		if strings.TrimPrefix(strings.TrimSuffix(name, ".tar.gz"), "sha256:") != sum {
			t.Errorf("%s has the sum %s", name, sum)
		}
	}
}

func readTar(t *testing.T, path string) map[string][]byte {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer func() { _ = file.Close() }()
	entries := map[string][]byte{}
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		must(t, err)
		if entries[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesLayer(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	must(t, Write(fixture(t), out))
	layers, err := load(t, out).Layers()
	must(t, err)
	content, err := layers[1].Uncompressed()
	must(t, err)
	defer func() { _ = content.Close() }()
	var got []string
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(Epoch) {
			t.Errorf("%s: owner %d:%d, time %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got = append(got, fmt.Sprintf("%c %04o %s %d %s", h.Typeflag, h.Mode, h.Name, h.Size, h.Linkname))
	}
	want := []string{
		"0 0755 a 12 ",
		"2 0777 etc/mtab 0 ../proc/self/mounts",
		"0 0755 usr/local/bin/nodelvm 12 ",
		"5 0755 var/lib/nodelvm/ 0 ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("files layer:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestSameInputGivesSameBytes(t *testing.T) {
	spec := fixture(t)
	dir := t.TempDir()
	var first []byte
	for i := range 3 {
		// Neither the clock, nor the files' own times, nor the folder may show.
		at := time.Now().Add(time.Duration(i) * time.Hour)
		must(t, os.Chtimes(spec.Files["/a"], at, at))
		out := filepath.Join(dir, fmt.Sprint(i), "image.tar")
		must(t, Write(spec, out))
		content, err := os.ReadFile(out)
		must(t, err)
		if first == nil {
			first = content
		}
		if !bytes.Equal(first, content) {
			t.Fatalf("run %d differs from the first", i)
		}
	}
}

func TestCompressedBaseIsTakenAsItIs(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner.tar")
	must(t, Write(fixture(t), inner))
	layers, err := load(t, inner).Layers()
	must(t, err)
	want, err := layers[1].Digest()
	must(t, err)
	packed, err := layers[1].Compressed()
	must(t, err)
	defer func() { _ = packed.Close() }()
	content, err := io.ReadAll(packed)
	must(t, err)
	base := filepath.Join(dir, "base.tar.gz")
	must(t, os.WriteFile(base, content, 0o600))
	out := filepath.Join(dir, "outer.tar")
	must(t, Write(Spec{Ref: ref, Base: base}, out))
	if layers, err = load(t, out).Layers(); err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	if got, err := layers[0].Digest(); err != nil || got != want {
		t.Errorf("base layer has digest %v (%v), the file had %v", got, err, want)
	}
}

func TestBadSpecLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Spec)
		want   string
	}{
		"no tag":          {func(s *Spec) { s.Ref = "ghcr.io/nodelvm/nodelvm" }, "full name with a tag"},
		"short name":      {func(s *Spec) { s.Ref = "nodelvm" }, "full name with a tag"},
		"nothing in it":   {func(s *Spec) { s.Base, s.Files, s.Links, s.Dirs = "", nil, nil, nil }, "neither a base nor files"},
		"missing base":    {func(s *Spec) { s.Base += ".not" }, "base layer"},
		"missing file":    {func(s *Spec) { s.Files["/x"] = "/does/not/exist" }, "/does/not/exist"},
		"folder for file": {func(s *Spec) { s.Files["/x"] = "/" }, "not a regular file"},
		"relative path":   {func(s *Spec) { s.Dirs = []string{"x"} }, "must be absolute"},
		"root":            {func(s *Spec) { s.Dirs = []string{"/x/.."} }, "below /"},
		"twice":           {func(s *Spec) { s.Links["/a/"] = "b" }, "named twice"},
	} {
		t.Run(name, func(t *testing.T) {
			spec, dir := fixture(t), t.TempDir()
			test.change(&spec)
			err := Write(spec, filepath.Join(dir, "image.tar"))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

// must ends the test at once if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
