package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

const deployDir = ".."

func TestManifestIsTheRenderedChart(t *testing.T) {
	want, err := renderManifest(deployDir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(deployDir, manifest))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("deploy/%s is not what the chart gives (run \"make manifest\"); line %d is\n%s\nwant\n%s", manifest, i+1, g[i], w[i])
		}
	}
	t.Fatalf("deploy/%s is not what the chart gives (run \"make manifest\"): %d lines, want %d", manifest, len(g), len(w))
}

func TestChartLints(t *testing.T) {
	for name, values := range map[string]map[string]any{"defaults": {}, "manifest": manifestValues, "all": everything()} {
		result := lint.All(filepath.Join(deployDir, chartDir), values, namespace, true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m.Error())
			}
		}
	}
}

// shipped returns the objects of the plain manifest.
func shipped(t *testing.T) []document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployDir, manifest))
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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

func TestManifestHasExactlyTheseObjects(t *testing.T) {
	var got []string
	for _, doc := range shipped(t) {
		got = append(got, doc.kind.Kind+" "+doc.name)
	}
	want := []string{
		"CSIDriver nodelvm.io", "ClusterRole nodelvm", "ClusterRoleBinding nodelvm", "DaemonSet nodelvm",
		"Namespace nodelvm-system", "Role nodelvm", "RoleBinding nodelvm", "ServiceAccount nodelvm",
		"ValidatingAdmissionPolicy nodelvm-node-restriction", "ValidatingAdmissionPolicyBinding nodelvm-node-restriction",
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("objects\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestExamplesParse(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(deployDir, "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		classes := 0
		for _, doc := range split(t, string(text)) {
			if doc.kind.Kind != "StorageClass" {
				continue
			}
			classes++
			checkClass(t, doc)
		}
		if classes == 0 {
			t.Errorf("%s has no StorageClass", file)
		}
	}
}

func checkClass(t *testing.T, doc document) {
	t.Helper()
	var class storage.StorageClass
	if err := yaml.Unmarshal([]byte(doc.text), &class); err != nil {
		t.Fatal(err)
	}
	if class.Provisioner != "nodelvm.io" || class.VolumeBindingMode == nil ||
		*class.VolumeBindingMode != storage.VolumeBindingWaitForFirstConsumer || class.Parameters["volumeGroup"] == "" {
		t.Errorf("class %s would not work: %+v", class.Name, class)
	}
}

// TestImagesAreThoseThatAreTested ties the chart to the file of versions, which the lab runs.
func TestImagesAreThoseThatAreTested(t *testing.T) {
	versions := map[string]string{}
	text, err := os.ReadFile(filepath.Join(deployDir, "..", "versions.env"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			versions[key] = value
		}
	}
	pod := daemonSet(t, shipped(t)).Spec.Template.Spec
	want := map[string]string{
		"nodelvm":         "ghcr.io/nodelvm/nodelvm:v0.1.0",
		"csi-provisioner": "registry.k8s.io/sig-storage/csi-provisioner:" + versions["CSI_PROVISIONER_VERSION"],
	}
	for _, c := range pod.Containers {
		if c.Image != want[c.Name] {
			t.Errorf("container %s has image %s, want %s", c.Name, c.Image, want[c.Name])
		}
		delete(want, c.Name)
	}
	if len(want) > 0 {
		t.Errorf("containers are missing: %v", want)
	}
	module, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if line := "helm.sh/helm/v3 " + versions["HELM_VERSION"] + "\n"; !strings.Contains(string(module), line) {
		t.Errorf("go.mod does not have %q of versions.env", line)
	}
}

func daemonSet(t *testing.T, docs []document) *apps.DaemonSet {
	t.Helper()
	var set apps.DaemonSet
	only(t, docs, "DaemonSet", &set)
	return &set
}

// TestPodKeepsItsPromises holds the pod to what the design says of it.
func TestPodKeepsItsPromises(t *testing.T) {
	set := daemonSet(t, shipped(t))
	pod := set.Spec.Template.Spec
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares a namespace of the host")
	}
	if pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds != 600 {
		t.Errorf("grace period %v, want 600 s", pod.TerminationGracePeriodSeconds)
	}
	volumes := map[string]core.Volume{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, c := range pod.Containers {
		if _, limited := c.Resources.Limits[core.ResourceMemory]; limited {
			t.Errorf("container %s has a memory limit", c.Name)
		}
		privileged := c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
		if privileged != (c.Name == "nodelvm") {
			t.Errorf("container %s: privileged is %v", c.Name, privileged)
		}
		for _, m := range c.VolumeMounts {
			bidirectional := m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional
			if bidirectional != (m.Name == "kubelet") {
				t.Errorf("container %s, mount %s: bidirectional is %v", c.Name, m.Name, bidirectional)
			}
			host := volumes[m.Name].HostPath
			if c.Name == "nodelvm" && host != nil && host.Path != m.MountPath {
				t.Errorf("host path %s is seen as %s", host.Path, m.MountPath)
			}
		}
	}
}

// everything is a set of values with every part of the chart in use.
func everything() map[string]any {
	return map[string]any{
		"kubeletDir": "/var/lib/k0s/kubelet", "volumeLimit": 16, "clusterID": "c1", "logLevel": "debug",
		"imagePullSecrets": []any{map[string]any{"name": "pull"}},
		"nodeSelector":     map[string]any{"nodelvm.io/storage": "true"},
		"affinity":         map[string]any{"nodeAffinity": map[string]any{}},
		"podAnnotations":   map[string]any{"a": "b"}, "podLabels": map[string]any{"c": "d"},
		"storageClasses": []any{
			map[string]any{"name": "local", "default": true, "parameters": map[string]any{"volumeGroup": "@fast", "stripes": 2}},
			map[string]any{"name": "keep", "reclaimPolicy": "Retain", "mountOptions": []any{"noatime"},
				"parameters": map[string]any{"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "xfs"}},
		},
		"createNamespace": true,
	}
}

func TestValuesArriveWhereTheyBelong(t *testing.T) {
	text, err := render(filepath.Join(deployDir, chartDir), everything())
	if err != nil {
		t.Fatal(err)
	}
	docs := split(t, text)
	classes := 0
	for _, doc := range docs {
		if doc.kind.Kind == "StorageClass" {
			classes++
			checkClass(t, doc)
		}
	}
	if classes != 2 {
		t.Errorf("%d storage classes, want 2", classes)
	}
	set := daemonSet(t, docs)
	args := strings.Join(set.Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{
		"--endpoint=unix:///var/lib/k0s/kubelet/plugins/nodelvm.io/csi.sock", "--kubelet-dir=/var/lib/k0s/kubelet",
		"--volume-limit=16", "--cluster-id=c1", "--log-level=debug",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("arguments %s lack %s", args, want)
		}
	}
	if set.Spec.Template.Labels["c"] != "d" || set.Spec.Template.Annotations["a"] != "b" ||
		set.Spec.Template.Spec.NodeSelector["nodelvm.io/storage"] != "true" || len(set.Spec.Template.Spec.ImagePullSecrets) != 1 {
		t.Errorf("pod template %+v", set.Spec.Template)
	}
}

func TestSwitchedOffPartsAreAbsent(t *testing.T) {
	text, err := render(filepath.Join(deployDir, chartDir), map[string]any{"nodeRestriction": map[string]any{"enabled": false}})
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range split(t, text) {
		if strings.HasPrefix(doc.kind.Kind, "ValidatingAdmission") || doc.kind.Kind == "Namespace" || doc.kind.Kind == "StorageClass" {
			t.Errorf("%s %s is there", doc.kind.Kind, doc.name)
		}
	}
}

func TestSchemaRefusesBadValues(t *testing.T) {
	class := func(key string, value any) map[string]any {
		c := map[string]any{"name": "local", "parameters": map[string]any{"volumeGroup": "vg"}}
		c[key] = value
		return map[string]any{"storageClasses": []any{c}}
	}
	for name, values := range map[string]map[string]any{
		"unknown value":        {"kubeletdir": "/var/lib/kubelet"},
		"relative kubelet dir": {"kubeletDir": "var/lib/kubelet"},
		"trailing slash":       {"kubeletDir": "/var/lib/kubelet/"},
		"log level":            {"logLevel": "loud"},
		"negative limit":       {"volumeLimit": -1},
		"limit as text":        {"volumeLimit": "many"},
		"memory limit":         {"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}},
		"unknown in image":     {"image": map[string]any{"name": "x"}},
		"sidecar without tag":  {"provisioner": map[string]any{"image": map[string]any{"tag": ""}}},
		"class without group":  class("parameters", map[string]any{}),
		"empty group":          class("parameters", map[string]any{"volumeGroup": ""}),
		"misspelt parameter":   class("parameters", map[string]any{"volumeGroup": "vg", "strips": 2}),
		"immediate binding":    class("volumeBindingMode", "Immediate"),
		"class name":           class("name", "Local SSD"),
		"reclaim policy":       class("reclaimPolicy", "Recycle"),
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(filepath.Join(deployDir, chartDir), values)
			if err == nil || !strings.Contains(err.Error(), "schema") {
				t.Errorf("error %v, want the schema's (%s)", err, fmt.Sprintf("%.40s", text))
			}
		})
	}
}
