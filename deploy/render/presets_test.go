package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPresets: the chart accepts each preset, the preset changes what the chart gives, and docs/howto/distributions.md names it.
func TestPresets(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(deployDir, "..", "docs", "howto", "distributions.md"))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := render(filepath.Join(deployDir, chartDir), nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(deployDir, chartDir, "presets", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values map[string]any
		if err := yaml.UnmarshalStrict(text, &values); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got, err := render(filepath.Join(deployDir, chartDir), values); err != nil || got == plain {
			t.Errorf("%s: %v, or it changes nothing", file, err)
		}
		if name := "presets/" + filepath.Base(file); !strings.Contains(string(page), name) {
			t.Errorf("docs/howto/distributions.md does not name %s", name)
		}
	}
}

// TestSELinuxOptions: the sidecars get the options, and stay without privilege.
func TestSELinuxOptions(t *testing.T) {
	text, err := render(filepath.Join(deployDir, chartDir), map[string]any{"seLinuxOptions": map[string]any{"type": "spc_t"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range daemonSet(t, split(t, text)).Spec.Template.Spec.Containers {
		got := c.SecurityContext.SELinuxOptions
		sidecar := strings.HasPrefix(c.Name, "csi-")
		if sidecar != (got != nil) || sidecar && got.Type != "spc_t" {
			t.Errorf("container %s has the SELinux options %+v", c.Name, got)
		}
		checkPrivileges(t, c.Name, *c.SecurityContext, !sidecar)
	}
}
