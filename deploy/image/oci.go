package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// refName is the annotation with an image's tag in an OCI layout.
const refName = "org.opencontainers.image.ref.name"

// WriteIndex writes an OCI archive with one index of the images in docker archives, one for each architecture. It returns the
// digest of the index, which is the digest that a registry will show after a push.
func WriteIndex(tag string, archives []string, out string) (digest string, err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, path := range archives {
		img, err := ociImage(path)
		if err != nil {
			return "", fmt.Errorf("image %s: %w", path, err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			return "", fmt.Errorf("image %s: %w", path, err)
		}
		platform := &v1.Platform{OS: config.OS, Architecture: config.Architecture}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
	}
	dir, err := os.MkdirTemp(filepath.Dir(out), ".oci-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag})); err != nil {
		return "", err
	}
	h, err := index.Digest()
	if err != nil {
		return "", err
	}
	return h.String(), tarDir(dir, out)
}

// ociImage reads a docker archive as an OCI image with the same layers.
func ociImage(path string) (v1.Image, error) {
	from, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		return nil, err
	}
	layers, err := from.Layers()
	if err != nil {
		return nil, err
	}
	config, err := from.ConfigFile()
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for i, layer := range layers {
		img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: config.History[i], MediaType: types.OCILayer})
		if err != nil {
			return nil, err
		}
	}
	return mutate.ConfigFile(img, config)
}

// Media types of a Helm chart in a registry.
const (
	chartConfig  = "application/vnd.cncf.helm.config.v1+json"
	chartContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// WriteChart writes an OCI archive with a packed Helm chart; metadata is its Chart.yaml as JSON. It returns the digest of the manifest.
func WriteChart(tag string, chart, metadata []byte, out string) (digest string, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".oci-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	blobs := filepath.Join(dir, "blobs", "sha256")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return "", err
	}
	config, err1 := writeBlob(blobs, chartConfig, metadata)
	content, err2 := writeBlob(blobs, chartContent, chart)
	text, err3 := json.Marshal(v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{content}})
	manifest, err4 := writeBlob(blobs, types.OCIManifestSchema1, text)
	manifest.Annotations = map[string]string{refName: tag}
	index, err5 := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{manifest}})
	err = errors.Join(err1, err2, err3, err4, err5,
		os.WriteFile(filepath.Join(dir, "index.json"), index, 0o600),
		os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o600))
	if err != nil {
		return "", err
	}
	return manifest.Digest.String(), tarDir(dir, out)
}

func writeBlob(dir string, kind types.MediaType, content []byte) (v1.Descriptor, error) {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	d := v1.Descriptor{MediaType: kind, Size: int64(len(content)), Digest: v1.Hash{Algorithm: "sha256", Hex: name}}
	return d, os.WriteFile(filepath.Join(dir, name), content, 0o600)
}

// tarDir writes a folder as a tar: in the order of the names, owned by root, dated Epoch.
func tarDir(dir, out string) (err error) {
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := tar.NewWriter(file)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(archive, filepath.ToSlash(name), path)
	})
	return errors.Join(err, archive.Close())
}

func addFile(archive *tar.Writer, name, path string) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Size: info.Size(), Mode: 0o644, ModTime: Epoch, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(archive, file)
	return err
}
