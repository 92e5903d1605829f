// Command oci writes OCI archives, which crane, skopeo and oras push to a registry:
//
//	go run ./cmd/oci index TAG OUT.tar IMAGE.tar...   one index of the docker archives of several architectures
//	go run ./cmd/oci chart TAG OUT.tar CHART.tgz      a packed Helm chart
//
// It prints the digest that a registry will show.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"github.com/nodelvm/nodelvm/deploy/image"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: oci index|chart TAG OUT.tar FILE...")
		os.Exit(2)
	}
	digest, err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "oci:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

func run(what, tag, out string, files []string) (digest string, err error) {
	switch {
	case what == "index":
		return image.WriteIndex(tag, files, out)
	case what != "chart" || len(files) != 1:
		return "", fmt.Errorf("cannot write %q of %d files: it is index, or chart with one file", what, len(files))
	}
	chart, err := os.ReadFile(files[0])
	if err != nil {
		return "", err
	}
	metadata, err := chartMetadata(chart)
	if err != nil {
		return "", fmt.Errorf("chart %s: %w", files[0], err)
	}
	return image.WriteChart(tag, chart, metadata, out)
}

// chartMetadata returns a packed chart's Chart.yaml as JSON.
func chartMetadata(chart []byte) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(chart))
	if err != nil {
		return nil, err
	}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it has no Chart.yaml")
		}
		if err != nil {
			return nil, err
		}
		if dir, name := path.Split(header.Name); name == "Chart.yaml" && path.Dir(path.Clean(dir)) == "." {
			text, err := io.ReadAll(archive)
			if err != nil {
				return nil, err
			}
			return toJSON(text)
		}
	}
}

func toJSON(text []byte) ([]byte, error) {
	var metadata map[string]any
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return nil, err
	}
	return json.Marshal(metadata)
}
