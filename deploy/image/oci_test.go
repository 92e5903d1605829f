package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// TestWriteIndex: one index names the image of each architecture, in OCI's media types, and two runs give the same bytes.
func TestWriteIndex(t *testing.T) {
	var archives []string
	for _, arch := range []string{"amd64", "arm64"} {
		program := filepath.Join(t.TempDir(), "program")
		put(t, program, arch)
		out := filepath.Join(t.TempDir(), arch+".tar")
		must(t, Write(Spec{Ref: "example.org/x:v1", Arch: arch, Files: map[string]string{"/program": program}}, out))
		archives = append(archives, out)
	}
	first, second := filepath.Join(t.TempDir(), "a.tar"), filepath.Join(t.TempDir(), "b.tar")
	digest, err := WriteIndex("v1", archives, first)
	must(t, err)
	if again, err := WriteIndex("v1", archives, second); err != nil || again != digest || !bytes.Equal(get(t, first), get(t, second)) {
		t.Errorf("the second run gave %s, %v, want the same bytes as %s", again, err, digest)
	}
	top, err := layout.ImageIndexFromPath(unpack(t, first))
	must(t, err)
	manifest := manifestOf(t, top)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Digest.String() != digest || manifest.Manifests[0].Annotations[refName] != "v1" {
		t.Fatalf("the layout has %+v, want %s as v1", manifest.Manifests, digest)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	for i, arch := range []string{"amd64", "arm64"} {
		d := manifestOf(t, index).Manifests[i]
		if d.Platform == nil || d.Platform.Architecture != arch || d.MediaType != types.OCIManifestSchema1 {
			t.Errorf("image %d is %+v, want an OCI image for %s", i, d, arch)
		}
		img, err := index.Image(d.Digest)
		must(t, err)
		layers, err := img.Layers()
		if err != nil || len(layers) != 1 {
			t.Fatalf("layers %v, %v", layers, err)
		}
		if kind, err := layers[0].MediaType(); err != nil || kind != types.OCILayer {
			t.Errorf("the layer is %s, %v", kind, err)
		}
	}
}

func manifestOf(t *testing.T, index v1.ImageIndex) *v1.IndexManifest {
	t.Helper()
	m, err := index.IndexManifest()
	must(t, err)
	return m
}

// TestWriteChart: the archive has Helm's media types, and the chart unchanged.
func TestWriteChart(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "a.tar"), filepath.Join(t.TempDir(), "b.tar")
	digest, err := WriteChart("0.1.0", []byte("packed"), []byte(`{"name":"x"}`), first)
	must(t, err)
	if again, err := WriteChart("0.1.0", []byte("packed"), []byte(`{"name":"x"}`), second); err != nil || again != digest || !bytes.Equal(get(t, first), get(t, second)) {
		t.Errorf("the second run gave %s, %v, want the same bytes as %s", again, err, digest)
	}
	dir := unpack(t, first)
	var index v1.IndexManifest
	decode(t, filepath.Join(dir, "index.json"), &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest.String() != digest || index.Manifests[0].Annotations[refName] != "0.1.0" {
		t.Fatalf("the layout has %+v", index.Manifests)
	}
	var manifest v1.Manifest
	decode(t, blob(dir, index.Manifests[0]), &manifest)
	if manifest.Config.MediaType != chartConfig || string(get(t, blob(dir, manifest.Config))) != `{"name":"x"}` {
		t.Errorf("config %+v", manifest.Config)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != chartContent || string(get(t, blob(dir, manifest.Layers[0]))) != "packed" {
		t.Errorf("layers %+v", manifest.Layers)
	}
}

func blob(dir string, d v1.Descriptor) string {
	return filepath.Join(dir, "blobs", "sha256", d.Digest.Hex)
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	must(t, json.Unmarshal(get(t, path), into))
}

// unpack answers a folder with the files of a tar.
func unpack(t *testing.T, path string) string {
	t.Helper()
	dir := t.TempDir()
	for archive := tar.NewReader(bytes.NewReader(get(t, path))); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		must(t, err)
		text, err := io.ReadAll(archive)
		if err != nil || !header.ModTime.Equal(Epoch) {
			t.Fatalf("%s: %v, dated %s", header.Name, err, header.ModTime)
		}
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		put(t, name, string(text))
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func get(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}
