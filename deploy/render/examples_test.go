package main

import (
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

// This file reads what users copy: the examples, and the YAML in the documentation.

// TestExamplesParse: each object of the examples is valid, and each claim names a class of the examples. No two examples define
// one class differently: the parameters of a class are immutable, so kubectl apply would fail.
func TestExamplesParse(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(deployDir, "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("examples %v, %v", files, err)
	}
	classes := map[string]*storage.StorageClass{}
	wanted := map[string]string{} // by the name of a class: a file that wants it
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for _, doc := range split(t, string(text)) {
			if doc.kind.Kind == "StorageClass" {
				class := checkClass(t, doc)
				if other := classes[class.Name]; other != nil && !reflect.DeepEqual(other, class) {
					t.Errorf("%s makes the class %s in another way than another example", file, class.Name)
				}
				classes[class.Name] = class
			}
			for _, name := range wantedBy(t, doc) {
				wanted[name] = file
			}
		}
	}
	for name, file := range wanted {
		if classes[name] == nil {
			t.Errorf("%s wants the class %q, which no example makes", file, name)
		}
	}
	if len(wanted) < 2 {
		t.Errorf("claims of the classes %v were found", wanted)
	}
}

// wantedBy names the storage classes of the claims that an object is, or has templates for.
func wantedBy(t *testing.T, doc document) (names []string) {
	t.Helper()
	var claim core.PersistentVolumeClaim
	var set apps.StatefulSet
	into := map[string]any{"PersistentVolumeClaim": &claim, "StatefulSet": &set}[doc.kind.Kind]
	if into == nil {
		return nil
	}
	must(t, yaml.Unmarshal([]byte(doc.text), into))
	for _, c := range append(set.Spec.VolumeClaimTemplates, claim) {
		if c.Spec.StorageClassName != nil {
			names = append(names, *c.Spec.StorageClassName)
		}
	}
	return names
}

// TestValuesInTheDocs: the values and the objects that the pages show are accepted.
func TestValuesInTheDocs(t *testing.T) {
	values, objects := 0, 0
	for page, block := range yamlBlocks(t) {
		var keys map[string]any
		if err := yaml.Unmarshal([]byte(block), &keys); err != nil {
			t.Errorf("%s: %v in\n%s", page, err, block)
		}
		switch {
		case keys["kind"] == "KubeSchedulerConfiguration": // no object; TestWhichNodesClaimsGet runs a scheduler with it
			if missing := profilesMissing(t, keys); missing != "" {
				t.Errorf("%s lacks this profile of TestWhichNodesClaimsGet:\n%s", page, missing)
			}
		case keys["apiVersion"] != nil:
			objects += len(split(t, block))
		case keys["volumeGroups"] != nil || keys["storageClasses"] != nil:
			values++
			text, err := render(filepath.Join(deployDir, chartDir), keys)
			if err != nil {
				t.Errorf("%s: %v", page, err)
			}
			split(t, text)
		}
	}
	if values < 2 || objects < 2 {
		t.Errorf("%d files of values and %d objects were found", values, objects)
	}
}

// profilesMissing returns a profile of the scheduler that TestWhichNodesClaimsGet runs and that the configuration lacks.
func profilesMissing(t *testing.T, configuration map[string]any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, "..", "test", "apiserver", "testdata", "schedulers.yaml"))
	must(t, err)
	var tested map[string]any
	must(t, yaml.Unmarshal(text, &tested))
	shown, _ := configuration["profiles"].([]any)
	for _, profile := range tested["profiles"].([]any) {
		if !slices.ContainsFunc(shown, func(s any) bool { return reflect.DeepEqual(s, profile) }) {
			text, err := yaml.Marshal(profile)
			must(t, err)
			return string(text)
		}
	}
	return ""
}

// yamlBlocks are the blocks of YAML in the README and in docs, with the page of each.
func yamlBlocks(t *testing.T) iter.Seq2[string, string] {
	t.Helper()
	pages := []string{filepath.Join(deployDir, "..", "README.md")}
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md"} {
		more, err := filepath.Glob(filepath.Join(deployDir, "..", "docs", pattern))
		must(t, err)
		pages = append(pages, more...)
	}
	return func(yield func(page, block string) bool) {
		for _, page := range pages {
			text, err := os.ReadFile(page)
			must(t, err)
			for _, found := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
				if !yield(page, found[1]) {
					return
				}
			}
		}
	}
}

// TestGitOpsValues: the values in the objects for Argo CD and Flux are accepted, and create the classes.
func TestGitOpsValues(t *testing.T) {
	checked := 0
	for page, block := range yamlBlocks(t) {
		if filepath.Base(page) != "gitops.md" {
			continue
		}
		for _, doc := range split(t, block) {
			var object struct {
				Spec struct {
					Values map[string]any
					Source struct {
						Helm struct{ ValuesObject map[string]any }
					}
				}
			}
			must(t, yaml.Unmarshal([]byte(doc.text), &object))
			values := object.Spec.Values
			if values == nil {
				values = object.Spec.Source.Helm.ValuesObject
			}
			if values == nil {
				continue
			}
			checked++
			text, err := render(filepath.Join(deployDir, chartDir), values)
			if err != nil {
				t.Fatalf("%s: %v", doc.kind.Kind, err)
			}
			classes := 0
			for _, made := range split(t, text) {
				if made.kind.Kind == "StorageClass" || made.kind.Kind == "VolumeSnapshotClass" {
					classes++
				}
			}
			if classes != 2 {
				t.Errorf("%s: %d classes, want 2", doc.kind.Kind, classes)
			}
		}
	}
	if checked != 2 {
		t.Errorf("the values of %d objects were checked, want those of Argo CD and Flux", checked)
	}
}
