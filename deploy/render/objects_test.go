package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	groupsnapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// This file reads manifests.

func init() {
	utilruntime.Must(snapshots.AddToScheme(scheme.Scheme))
	utilruntime.Must(groupsnapshots.AddToScheme(scheme.Scheme))
}

// foreignGroups are the Prometheus Operator's objects, which TestMonitoring reads, and those of GitOps tools: TestGitOpsValues.
var foreignGroups = []string{"monitoring.coreos.com", "argoproj.io", "postgresql.cnpg.io", "source.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"}

// document is one object of a manifest.
type document struct {
	kind schema.GroupVersionKind
	name string
	text string
}

// decode parses the object strictly.
func (d document) decode(t *testing.T, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(d.text), into); err != nil {
		t.Fatalf("%s %s: %v", d.kind.Kind, d.name, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// renderWith returns the objects of the chart with these values.
func renderWith(t *testing.T, values map[string]any) []document {
	t.Helper()
	text, err := render(filepath.Join(deployDir, chartDir), values)
	must(t, err)
	return split(t, text)
}

// shipped returns the objects of the plain manifest.
func shipped(t *testing.T) []document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, manifest))
	must(t, err)
	return split(t, string(text))
}

// split parses every object strictly: an unknown or repeated field is an error, as
// kubectl apply --validate=strict would have it.
func split(t *testing.T, text string) []document {
	t.Helper()
	var docs []document
	for r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text))); ; {
		raw, err := r.Read()
		if errors.Is(err, io.EOF) {
			return docs
		}
		must(t, err)
		var head struct {
			meta.TypeMeta   `json:",inline"`
			meta.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal(raw, &head); err != nil {
			t.Fatalf("%v in\n%s", err, raw)
		}
		if head.Kind == "" {
			continue // a document of comments
		}
		kind := schema.FromAPIVersionAndKind(head.APIVersion, head.Kind)
		if slices.Contains(foreignGroups, kind.Group) {
			docs = append(docs, document{kind: kind, name: head.Name, text: string(raw)})
			continue
		}
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatalf("%s: %v", head.Name, err)
		}
		if err := yaml.UnmarshalStrict(raw, object); err != nil {
			t.Errorf("%s %s: %v", head.Kind, head.Name, err)
		}
		docs = append(docs, document{kind: kind, name: head.Name, text: string(raw)})
	}
}

// only decodes the one object of a kind into out.
func only(t *testing.T, docs []document, kind string, out any) {
	t.Helper()
	found := 0
	for _, doc := range docs {
		if doc.kind.Kind != kind {
			continue
		}
		found++
		doc.decode(t, out)
	}
	if found != 1 {
		t.Fatalf("%d objects of kind %s, want 1", found, kind)
	}
}
