package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func groupValues() map[string]any {
	return map[string]any{
		"deviceScanInterval": "10m",
		"volumeGroups": []any{map[string]any{
			"name": "vg-data", "tags": []any{"fast"}, "maxDevices": 4,
			"devices":  []any{map[string]any{"paths": []any{"/dev/disk/by-id/nvme-*"}, "minSize": "100Gi", "rotational": false, "model": "FAST*"}},
			"thinPool": map[string]any{"size": "500Gi", "autoextendThreshold": 70},
		}},
	}
}

// TestVolumeGroups: what is declared reaches the step before the driver and the driver itself, and a change restarts the
// pods; without declarations nothing of it is there.
func TestVolumeGroups(t *testing.T) {
	docs := renderWith(t, groupValues())
	pod := daemonSet(t, docs).Spec.Template
	if len(pod.Spec.InitContainers) != 1 || !slices.Equal(pod.Spec.InitContainers[0].Args, []string{"prepare", "--volume-groups-file=/etc/nodelvm/volume-groups.yaml", "--best-effort"}) {
		t.Fatalf("init containers %+v", pod.Spec.InitContainers)
	}
	driver := pod.Spec.Containers[0]
	if args := strings.Join(driver.Args, " "); !strings.Contains(args, "--volume-groups-file=/etc/nodelvm/volume-groups.yaml --device-scan-interval=10m") {
		t.Errorf("arguments of the driver: %s", args)
	}
	for _, c := range []corev1.Container{pod.Spec.InitContainers[0], driver} {
		for _, path := range []string{"/etc/nodelvm", "/dev", "/lib/modules", "/run", "/run/lock/lvm", "/var/lib/nodelvm"} {
			if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path }) {
				t.Errorf("container %s has no %s", c.Name, path)
			}
		}
	}
	i := slices.IndexFunc(docs, func(d document) bool { return d.kind.Kind == "ConfigMap" && d.name == "nodelvm-volume-groups" })
	if i < 0 {
		t.Fatal("no ConfigMap")
	}
	var config corev1.ConfigMap
	var declared map[string]any
	docs[i].decode(t, &config)
	must(t, yaml.UnmarshalStrict([]byte(config.Data["volume-groups.yaml"]), &declared))
	got, _ := yaml.Marshal(declared)
	want, _ := yaml.Marshal(map[string]any{"volumeGroups": groupValues()["volumeGroups"]})
	if string(got) != string(want) {
		t.Errorf("declared:\n%s\nwant:\n%s", got, want)
	}
	values := groupValues()
	values["volumeGroups"].([]any)[0].(map[string]any)["maxDevices"] = 5
	const note = "nodelvm.io/volume-groups-checksum"
	if other := daemonSet(t, renderWith(t, values)).Spec.Template.Annotations[note]; other == "" || other == pod.Annotations[note] {
		t.Errorf("a change does not restart the pods: %q", other)
	}
}

// TestSchemaRefusesBadVolumeGroups: Helm reports a typo at the installation.
func TestSchemaRefusesBadVolumeGroups(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"no devices":         func(g map[string]any) { delete(g, "devices") },
		"no condition":       func(g map[string]any) { g["devices"] = []any{map[string]any{}} },
		"misspelt condition": func(g map[string]any) { g["devices"] = []any{map[string]any{"path": "/dev/sdb"}} },
		"no path":            func(g map[string]any) { g["devices"] = []any{map[string]any{"paths": []any{"sdb"}}} },
		"no size":            func(g map[string]any) { g["devices"] = []any{map[string]any{"minSize": "large"}} },
		"no device at all":   func(g map[string]any) { g["maxDevices"] = 0 },
		"an option":          func(g map[string]any) { g["name"] = "-y" },
		"a bad tag":          func(g map[string]any) { g["tags"] = []any{"a b"} },
		"always growing":     func(g map[string]any) { g["thinPool"] = map[string]any{"autoextendThreshold": 0} },
		"never growing":      func(g map[string]any) { g["thinPool"] = map[string]any{"metadataAutoextendThreshold": 100} },
	} {
		values := groupValues()
		change(values["volumeGroups"].([]any)[0].(map[string]any))
		if _, err := render(filepath.Join(deployDir, chartDir), values); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for _, bad := range []any{"often", "-5m", 3} {
		if _, err := render(filepath.Join(deployDir, chartDir), map[string]any{"deviceScanInterval": bad}); err == nil {
			t.Errorf("interval %v is accepted", bad)
		}
	}
}
