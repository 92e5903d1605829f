package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// everything is a set of values with every part of the chart in use.
func everything(t *testing.T) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile(filepath.Join(deployDir, chartDir, "ci", "all-values.yaml"))
	must(t, err)
	return values
}

func TestValuesArriveWhereTheyBelong(t *testing.T) {
	docs := renderWith(t, everything(t))
	grow := map[string]bool{}
	for _, doc := range docs {
		if doc.kind.Kind == "StorageClass" {
			grow[doc.name] = *checkClass(t, doc).AllowVolumeExpansion
		}
	}
	if want := map[string]bool{"encrypted": true, "local": true, "keep": true, "fixed": false, "overcommitted": true}; !maps.Equal(grow, want) {
		t.Errorf("storage classes, and whether they may grow: %v, want %v", grow, want)
	}
	set := daemonSet(t, docs)
	args := strings.Join(set.Spec.Template.Spec.Containers[0].Args, " ")
	for _, want := range []string{
		"--endpoint=unix:///var/lib/k0s/kubelet/plugins/nodelvm.io/csi.sock", "--kubelet-dir=/var/lib/k0s/kubelet",
		"--max-volumes-per-node=16", "--trim", "--io-limits=/sys/fs/cgroup", "--move=:9812", "--move-rate=100Mi", "--move-former-copy-ttl=1h", "--log-level=debug",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("arguments %s lack %s", args, want)
		}
	}
	if cluster := (corev1.EnvVar{Name: "CLUSTER_ID", Value: "c1"}); !slices.Contains(set.Spec.Template.Spec.Containers[0].Env, cluster) {
		t.Errorf("the environment %v lacks %v", set.Spec.Template.Spec.Containers[0].Env, cluster)
	}
	if set.Spec.Template.Labels["c"] != "d" || set.Spec.Template.Annotations["a"] != "b" ||
		set.Spec.Template.Spec.NodeSelector["nodelvm.io/storage"] != "true" || len(set.Spec.Template.Spec.ImagePullSecrets) != 1 {
		t.Errorf("pod template %+v", set.Spec.Template)
	}
}

func TestSwitchedOffPartsAreAbsent(t *testing.T) {
	off := map[string]any{"enabled": false}
	for _, doc := range renderWith(t, map[string]any{"nodeRestriction": off, "requireClassField": false, "snapshotter": off}) {
		if strings.HasPrefix(doc.kind.Kind, "ValidatingAdmission") || doc.kind.Kind == "Namespace" || doc.kind.Kind == "StorageClass" {
			t.Errorf("%s %s is there", doc.kind.Kind, doc.name)
		}
		if strings.Contains(doc.text, "csi-snapshotter") || strings.Contains(doc.text, "--snapshots") || strings.Contains(doc.text, "volumesnapshotclasses") {
			t.Errorf("%s %s speaks of csi-snapshotter", doc.kind.Kind, doc.name)
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
		"condition":                 {"enabled": false},
		"unknown value":             {"kubeletdir": "/var/lib/kubelet"},
		"relative kubelet dir":      {"kubeletDir": "var/lib/kubelet"},
		"trailing slash":            {"kubeletDir": "/var/lib/kubelet/"},
		"log level":                 {"logLevel": "loud"},
		"negative limit":            {"maxVolumesPerNode": -1},
		"limit as text":             {"maxVolumesPerNode": "many"},
		"memory limit":              {"resources": map[string]any{"limits": map[string]any{"memory": "1Gi"}}},
		"unknown in image":          {"image": map[string]any{"name": "x"}},
		"sidecar without tag":       {"provisioner": map[string]any{"image": map[string]any{"tag": ""}}},
		"class without group":       class("parameters", map[string]any{}),
		"empty group":               class("parameters", map[string]any{"volumeGroup": ""}),
		"misspelt parameter":        class("parameters", map[string]any{"volumeGroup": "vg", "wpie": "none"}),
		"unknown layout":            class("parameters", map[string]any{"volumeGroup": "vg", "layout": "raid7"}),
		"no stripes":                class("parameters", map[string]any{"volumeGroup": "vg", "layout": "striped", "stripes": 0}),
		"bare stripe size":          class("parameters", map[string]any{"volumeGroup": "vg", "layout": "striped", "stripeSize": "64"}),
		"too little promised":       class("parameters", map[string]any{"volumeGroup": "vg", "layout": "thin", "overprovisionRatio": 0.5}),
		"snapshotter untagged":      {"snapshotter": map[string]any{"image": map[string]any{"tag": ""}}},
		"unknown in metrics":        {"metrics": map[string]any{"dashboard": map[string]any{}}},
		"interval as a number":      {"metrics": map[string]any{"podMonitor": map[string]any{"interval": 30}}},
		"unknown wipe":              class("parameters", map[string]any{"volumeGroup": "vg", "wipe": "shred"}),
		"unknown encryption":        class("parameters", map[string]any{"volumeGroup": "vg", "encryption": "luks1"}),
		"Secret without encryption": class("parameters", map[string]any{"volumeGroup": "vg", "csi.storage.k8s.io/node-stage-secret-name": "a", "csi.storage.k8s.io/node-stage-secret-namespace": "b"}),
		"another Secret":            class("parameters", map[string]any{"volumeGroup": "vg", "csi.storage.k8s.io/controller-expand-secret-name": "a"}),
		"no Secret":                 class("parameters", map[string]any{"volumeGroup": "vg", "encryption": "luks2"}),
		"immediate binding":         class("volumeBindingMode", "Immediate"),
		"class name":                class("name", "Local SSD"),
		"reclaim policy":            class("reclaimPolicy", "Recycle"),
		"unknown loss":              class("onNodeLoss", "delete"),
		"grace without unit":        {"controller": map[string]any{"gracePeriod": "10"}},

		"an argument without dashes": {"extraArgs": []any{"log-level=debug"}},
		"a slow rate":                {"move": map[string]any{"enabled": true, "rate": "3Mi"}},
		"a rate as a number":         {"move": map[string]any{"enabled": true, "rate": 100}},
		"no time for a former copy":  {"move": map[string]any{"enabled": true, "formerCopyTTL": "0h"}},
		"a short digest":             {"image": map[string]any{"digest": "sha256:1"}},
		"a registry with a scheme":   {"imageRegistry": "https://registry.example/"},
		"a devices file at the root": {"hostDevicesFile": "/devices"},
		"a volume without a name":    {"extraVolumes": []any{map[string]any{"emptyDir": map[string]any{}}}},
		"a deletion policy":          {"volumeSnapshotClasses": []any{map[string]any{"name": "a", "deletionPolicy": "Keep"}}},
		"another label":              class("allowedTopologies", []any{map[string]any{"matchLabelExpressions": []any{map[string]any{"key": "topology.kubernetes.io/zone", "values": []any{"a"}}}}}),
		"a topology term":            {"storageClasses": []any{map[string]any{"name": "a", "parameters": map[string]any{"volumeGroup": "v"}, "allowedTopologies": []any{map[string]any{"zone": "a"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := render(filepath.Join(deployDir, chartDir), values)
			if err == nil || !strings.Contains(err.Error(), "schema") {
				t.Errorf("error %v, want the schema's (%s)", err, fmt.Sprintf("%.40s", text))
			}
		})
	}
}

// TestFormerValuesOfTheController: values under janitor, the former name, still count, with and without those under controller. Notes
// after the update say how to write them.
func TestFormerValuesOfTheController(t *testing.T) {
	rendered := func(values map[string]any) (corev1.PodSpec, bool) {
		text, err := render(filepath.Join(deployDir, chartDir), values)
		must(t, err)
		for _, doc := range split(t, text) {
			if doc.kind.Kind == "Deployment" {
				var d apps.Deployment
				only(t, []document{doc}, "Deployment", &d)
				return d.Spec.Template.Spec, true
			}
		}
		return corev1.PodSpec{}, false
	}
	enabled, disabled := map[string]any{"enabled": true}, map[string]any{"enabled": false}
	former := map[string]any{"enabled": true, "gracePeriod": "1h", "nodeSelector": map[string]any{"a": "b"}, "tolerations": []any{map[string]any{"key": "c"}}}
	pod, there := rendered(map[string]any{"janitor": former})
	if !there || !slices.Contains(pod.Containers[0].Args, "--grace-period=1h") || pod.NodeSelector["a"] != "b" || pod.Tolerations[len(pod.Tolerations)-1].Key != "c" ||
		pod.Containers[0].Resources.Requests.Memory().IsZero() {
		t.Errorf("with values under janitor: %t, %+v", there, pod)
	}
	for name, test := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"neither":                       {map[string]any{}, false},
		"the former one is off":         {map[string]any{"janitor": disabled}, false},
		"on, and the former one is off": {map[string]any{"controller": enabled, "janitor": disabled}, true},
		"off, and the former one is on": {map[string]any{"controller": disabled, "janitor": enabled}, true},
	} {
		if _, there := rendered(test.values); there != test.want {
			t.Errorf("%s: the Deployment exists: %t", name, there)
		}
	}
	notes, err := notesOf(map[string]any{"janitor": former})
	if err != nil || !strings.Contains(notes, "janitor.gracePeriod -> controller.gracePeriod") {
		t.Errorf("the notes do not say what to write: %v\n%s", err, notes)
	}
	if notes, err := notesOf(map[string]any{"controller": enabled}); err != nil || strings.Contains(notes, "janitor") {
		t.Errorf("notes on a name that is not used: %v\n%s", err, notes)
	}
}

// notesOf returns what Helm prints after an installation.
func notesOf(values map[string]any) (string, error) {
	chart, err := loader.Load(filepath.Join(deployDir, chartDir))
	if err != nil {
		return "", err
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace}, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, all)
	return files[chart.Name()+"/templates/NOTES.txt"], err
}

// TestDependency: a chart that has this one as a dependency can have a condition on the value enabled.
func TestDependency(t *testing.T) {
	for _, enabled := range []bool{true, false} {
		own, err := loader.Load(filepath.Join(deployDir, chartDir))
		must(t, err)
		parent := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "parent", Version: "0.1.0",
			Dependencies: []*chart.Dependency{{Name: own.Name(), Version: own.Metadata.Version, Condition: "nodelvm.enabled"}}}}
		parent.AddDependency(own)
		values := map[string]any{"nodelvm": map[string]any{"enabled": enabled}}
		must(t, chartutil.ProcessDependencies(parent, values))
		_, err = chartutil.ToRenderValues(parent, values, chartutil.ReleaseOptions{Name: releaseName, Namespace: namespace}, chartutil.DefaultCapabilities)
		must(t, err)
		if got := len(parent.Dependencies()) == 1; got != enabled {
			t.Errorf("enabled: %t, and the chart takes part: %t", enabled, got)
		}
	}
}

// TestAbsentValues: a value that is absent counts as its default, or the schema refuses that. The values of an earlier release, which
// "helm upgrade --reuse-values" takes, lack those that are new; null removes one.
func TestAbsentValues(t *testing.T) {
	dir := filepath.Join(deployDir, chartDir)
	defaults, err := chartutil.ReadValuesFile(filepath.Join(dir, "values.yaml"))
	must(t, err)
	plain, err := render(dir, nil)
	must(t, err)
	// Whoever removes one of these wants none.
	removable := []string{"nodeSelector", "tolerations", "resources", "rollingUpdate", "pullPolicy"}
	var remove func(values map[string]any, parents ...string)
	remove = func(values map[string]any, parents ...string) {
		for key, value := range values {
			if slices.Contains(removable, key) {
				continue
			}
			name, without := strings.Join(append(slices.Clone(parents), key), "."), map[string]any{key: nil}
			for _, parent := range slices.Backward(parents) {
				without = map[string]any{parent: without}
			}
			switch text, err := render(dir, without); {
			case err != nil && !strings.Contains(err.Error(), "schema"):
				t.Errorf("without %s: %v", name, err)
			case err == nil && text != plain:
				t.Errorf("without %s the chart renders something else than with its default", name)
			}
			if below, ok := value.(map[string]any); ok {
				remove(below, append(slices.Clone(parents), key)...)
			}
		}
	}
	remove(defaults)
}

// TestNamesThatLookLikeNumbers: YAML does not read the name of a class as a number or a boolean.
func TestNamesThatLookLikeNumbers(t *testing.T) {
	var classes, snapshotClasses []any
	names := []string{"123", "true", "1e3", "0x10"}
	for _, name := range names {
		classes = append(classes, map[string]any{"name": name, "parameters": map[string]any{"volumeGroup": "vg"}})
		snapshotClasses = append(snapshotClasses, map[string]any{"name": name})
	}
	readers := []any{map[string]any{"name": "7", "namespace": "2026"}}
	var got []string
	for _, doc := range renderWith(t, map[string]any{"storageClasses": classes, "volumeSnapshotClasses": snapshotClasses, "metrics": map[string]any{"readers": readers}}) {
		var object struct {
			Metadata struct{ Name any }
			Subjects []struct{ Name, Namespace any }
		}
		must(t, yaml.Unmarshal([]byte(doc.text), &object))
		name, isText := object.Metadata.Name.(string)
		if !isText {
			t.Errorf("%s: the name is %v (%[2]T)", doc.kind.Kind, object.Metadata.Name)
		}
		for _, s := range object.Subjects {
			_, ok1 := s.Name.(string)
			_, ok2 := s.Namespace.(string)
			if !ok1 || !ok2 {
				t.Errorf("%s %s: the subject is %+v", doc.kind.Kind, name, s)
			}
		}
		if slices.Contains(names, name) {
			got = append(got, name)
		}
	}
	if len(got) != 2*len(names) {
		t.Errorf("classes: %q", got)
	}
}
