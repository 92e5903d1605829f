package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	storage "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// TestPresets: the chart accepts each preset, the preset changes what the chart gives, and docs/howto/distributions.md names it.
func TestPresets(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(deployDir, "..", "docs", "howto", "distributions.md"))
	must(t, err)
	plain, err := render(filepath.Join(deployDir, chartDir), nil)
	must(t, err)
	files, err := filepath.Glob(filepath.Join(deployDir, chartDir, "presets", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("found %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
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

// TestSELinuxMount: with the value, the kubelet requests labels as mount options.
func TestSELinuxMount(t *testing.T) {
	for _, enabled := range []bool{false, true} {
		docs := renderWith(t, map[string]any{"seLinuxMount": enabled})
		var driver storage.CSIDriver
		only(t, docs, "CSIDriver", &driver)
		if got := driver.Spec.SELinuxMount != nil && *driver.Spec.SELinuxMount; got != enabled {
			t.Errorf("with seLinuxMount %v, the CSIDriver has %v", enabled, got)
		}
	}
}

// TestSELinuxOptions: the sidecars get the options, and stay without privilege.
func TestSELinuxOptions(t *testing.T) {
	for _, c := range daemonSet(t, renderWith(t, map[string]any{"seLinuxOptions": map[string]any{"type": "spc_t"}})).Spec.Template.Spec.Containers {
		got := c.SecurityContext.SELinuxOptions
		sidecar := strings.HasPrefix(c.Name, "csi-")
		if sidecar != (got != nil) || sidecar && got.Type != "spc_t" {
			t.Errorf("container %s has the SELinux options %+v", c.Name, got)
		}
		checkPrivileges(t, c.Name, *c.SecurityContext, !sidecar)
	}
}
