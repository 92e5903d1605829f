// Command render writes the plain manifests, deploy/nodelvm.yaml and deploy/controller.yaml,
// from the Helm chart beside them:
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
	controller  = "controller.yaml"
	readme      = chartDir + "/README.md"
)

// headers open the plain manifests.
var headers = map[string]string{
	manifest: `# nodelvm: kubectl apply -f nodelvm.yaml, with your image in place of ghcr.io/nodelvm/nodelvm: none is published (docs/howto/install.md)
# Rendered from the Helm chart in chart/nodelvm by "make manifest"; change it there.
`,
	controller: `# nodelvm-controller, for clusters that have nodelvm.yaml: kubectl apply -f controller.yaml, with your image in place of ghcr.io/nodelvm/nodelvm
# Rendered from the Helm chart in chart/nodelvm by "make manifest"; change it there.
`,
}

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
	for _, name := range []string{manifest, controller} {
		text, err := renderManifest(deploy, name)
		if err != nil {
			return err
		}
		path := filepath.Join(deploy, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		fmt.Printf("wrote %s (%d objects)\n", path, strings.Count(text, "\nkind: "))
	}
	text, err := renderReadme(deploy)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(deploy, readme), []byte(text), 0o644)
}

// pack does what helm package does, and gives the same bytes each time.
func pack(deploy, out string) error {
	chart, err := loader.Load(filepath.Join(deploy, chartDir))
	if err != nil {
		return err
	}
	path, err := chartutil.Save(chart, out)
	if err != nil {
		return err
	}
	if err := undate(path); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Printf("wrote %s\n", path)
	return nil
}

// renderManifest returns what a plain manifest must hold: all that the chart installs, or nodelvm-controller, which it does not
// install by default, alone.
func renderManifest(deploy, name string) (string, error) {
	values := manifestValues
	if name == controller {
		values = map[string]any{"controller": map[string]any{"enabled": true}}
	}
	text, err := render(filepath.Join(deploy, chartDir), values)
	if name == controller {
		text = fromTemplate(text, "controller.yaml")
	}
	return headers[name] + text, err
}

// fromTemplate picks the objects that come from one of the chart's templates.
func fromTemplate(text, template string) string {
	var picked strings.Builder
	for object := range strings.SplitSeq(text, "---\n# Source: ") {
		if source, _, _ := strings.Cut(object, "\n"); strings.HasSuffix(source, "/templates/"+template) {
			picked.WriteString("---\n# Source: " + object)
		}
	}
	return picked.String()
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
