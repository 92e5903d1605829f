package image

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Spec says what an image holds and how it starts.
type Spec struct {
	// Ref is the image's name and tag, written to the archive exactly as given:
	// "ghcr.io/nodelvm/nodelvm:v0.1.0". A reference without a tag is refused.
	Ref string
	// Base is a root file system, tar or tar.gz, that becomes the first layer;
	// "" means none. A compressed one is taken over as it is.
	Base string
	// Arch is the CPU architecture in Go's words; "" means this machine's.
	Arch string

	// Files, Links and Dirs make the second layer; paths in the image are absolute.
	Files map[string]string // path in the image -> file on this machine; mode 0755, owner root
	Links map[string]string // path in the image -> target of the symbolic link
	Dirs  []string          // directories, mode 0755, owner root

	Entrypoint []string
	Cmd        []string
	Env        []string // KEY=VALUE
	User       string   // "" means root
	WorkingDir string
	Labels     map[string]string
}

// Epoch is the time that every entry and every image carries, so that the same
// input gives the same bytes on every machine and every day.
var Epoch = time.Unix(0, 0).UTC()

// Write makes the image of spec and stores it at out as a docker-archive.
// The file appears under its name only when it is whole. The same spec over the
// same files gives the same bytes. Layers are streamed: memory does not grow
// with their size.
func Write(spec Spec, out string) error {
	_, err := write(spec, out)
	return err
}

// WriteDigest is Write that also returns the digest of the image's manifest,
// which is the digest that a registry will show after a push.
func WriteDigest(spec Spec, out string) (digest string, err error) {
	img, err := write(spec, out)
	if err != nil {
		return "", err
	}
	h, err := img.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of image %s: %w", spec.Ref, err)
	}
	return h.String(), nil
}

func write(spec Spec, out string) (v1.Image, error) {
	tag, err := name.NewTag(spec.Ref, name.StrictValidation)
	if err != nil {
		return nil, fmt.Errorf("image reference %q must be a full name with a tag: %w", spec.Ref, err)
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return nil, err
	}
	// Next to out and not under /tmp: layers are large, and /tmp is often memory.
	scratch, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()

	img, err := build(spec, scratch)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", spec.Ref, err)
	}
	tmp := out + ".tmp"
	if err := tarball.WriteToFile(tmp, tag, img); err != nil {
		return nil, errors.Join(fmt.Errorf("write image %s to %s: %w", spec.Ref, tmp, err), os.Remove(tmp))
	}
	return img, os.Rename(tmp, out)
}

// build puts the layers and the configuration together; scratch takes the files layer.
func build(spec Spec, scratch string) (v1.Image, error) {
	var layers []mutate.Addendum
	if spec.Base != "" {
		base, err := tarball.LayerFromFile(spec.Base)
		if err != nil {
			return nil, fmt.Errorf("base layer %s: %w", spec.Base, err)
		}
		layers = append(layers, addendum(base, "Debian root file system"))
	}
	if len(spec.Files)+len(spec.Links)+len(spec.Dirs) > 0 {
		path := filepath.Join(scratch, "files.tar.gz")
		if err := writeFilesLayer(spec, path); err != nil {
			return nil, err
		}
		files, err := tarball.LayerFromFile(path)
		if err != nil {
			return nil, fmt.Errorf("files layer: %w", err)
		}
		layers = append(layers, addendum(files, "files of "+spec.Ref))
	}
	if len(layers) == 0 {
		return nil, errors.New("the image would be empty: it has neither a base nor files")
	}
	img, err := mutate.Append(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, configOf(config, spec))
}

func addendum(layer v1.Layer, what string) mutate.Addendum {
	return mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: what}}
}

// configOf returns layers, which lists the image's layers, with what spec says added.
func configOf(layers *v1.ConfigFile, spec Spec) *v1.ConfigFile {
	config := layers.DeepCopy()
	config.OS = "linux"
	config.Architecture = cmp.Or(spec.Arch, runtime.GOARCH)
	config.Created = v1.Time{Time: Epoch}
	config.Config = v1.Config{
		Entrypoint: slices.Clone(spec.Entrypoint),
		Cmd:        slices.Clone(spec.Cmd),
		Env:        slices.Clone(spec.Env),
		User:       spec.User,
		WorkingDir: spec.WorkingDir,
		Labels:     spec.Labels,
	}
	return config
}
