// Command render writes deploy/nodelvm.yaml, the plain manifest, from the Helm
// chart beside it:
//
//	cd deploy/render && go run .
//
// Helm's engine is used as a library, so the same version renders everywhere. The tests
// of this module keep the manifest equal to the chart, and hold the chart's
// admission policy to what the driver's pods really write.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

const (
	releaseName = "nodelvm"
	namespace   = "nodelvm-system"
	chartDir    = "chart/nodelvm"
	manifest    = "nodelvm.yaml"
)

// header opens the plain manifest.
const header = `# nodelvm: kubectl apply -f nodelvm.yaml
# Rendered from the Helm chart in chart/nodelvm by "make manifest"; change it there.
`

// manifestValues is how the plain manifest differs from the chart's defaults.
var manifestValues = map[string]any{"createNamespace": true}

func main() {
	deploy := flag.String("deploy", "..", "the folder with the chart and the manifest")
	out := flag.String("package", "", "a folder: write the chart there, packed, and leave the manifest alone")
	flag.Parse()
	job := func() error { return run(*deploy) }
	if *out != "" {
		job = func() error { return pack(*deploy, *out) }
	}
	if err := job(); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

func run(deploy string) error {
	text, err := renderManifest(deploy)
	if err != nil {
		return err
	}
	path := filepath.Join(deploy, manifest)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	fmt.Printf("wrote %s (%d objects)\n", path, strings.Count(text, "\nkind: "))
	return nil
}

// pack does what helm package does.
func pack(deploy, out string) error {
	chart, err := loader.Load(filepath.Join(deploy, chartDir))
	if err != nil {
		return err
	}
	path, err := chartutil.Save(chart, out)
	if err == nil {
		fmt.Printf("wrote %s\n", path)
	}
	return err
}

// renderManifest returns what deploy/nodelvm.yaml must hold.
func renderManifest(deploy string) (string, error) {
	text, err := render(filepath.Join(deploy, chartDir), manifestValues)
	return header + text, err
}

// render returns the objects of the chart in dir under values, in the order in
// which Helm installs them. Values that the chart's schema refuses are an error.
func render(dir string, values map[string]any) (string, error) {
	chart, err := loader.Load(dir)
	if err != nil {
		return "", fmt.Errorf("load chart %s: %w", dir, err)
	}
	release := chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return "", fmt.Errorf("values of chart %s: %w", dir, err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return "", fmt.Errorf("render chart %s: %w", dir, err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return !strings.HasSuffix(name, ".yaml") })
	hooks, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", fmt.Errorf("sort objects of chart %s: %w", dir, err)
	}
	if len(hooks) > 0 {
		return "", fmt.Errorf("chart %s has a hook, %s: a plain manifest cannot have one", dir, hooks[0].Path)
	}
	var text strings.Builder
	for _, object := range objects {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", object.Name, strings.TrimSpace(object.Content))
	}
	return text.String(), nil
}
