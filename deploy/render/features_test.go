package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	snapshots "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	storage "k8s.io/api/storage/v1"
)

func renderAll(t *testing.T) []document {
	t.Helper()
	return renderWith(t, everything(t))
}

// TestImageNames: the registry of all images replaces that of each name, and a digest the tag.
func TestImageNames(t *testing.T) {
	own := func(image map[string]any, more map[string]any) map[string]any {
		values := map[string]any{"image": image}
		for key, value := range more {
			values[key] = value
		}
		return values
	}
	mirror := map[string]any{"imageRegistry": "registry.example:5000/mirror"}
	digest := "sha256:" + strings.Repeat("0a", 32)
	for name, c := range map[string]struct {
		values map[string]any
		want   string
	}{
		"default":              {nil, "ghcr.io/nodelvm/nodelvm:v0.1.0"},
		"tag":                  {own(map[string]any{"tag": "v9"}, nil), "ghcr.io/nodelvm/nodelvm:v9"},
		"digest":               {own(map[string]any{"tag": "v9", "digest": digest}, nil), "ghcr.io/nodelvm/nodelvm@" + digest},
		"registry":             {mirror, "registry.example:5000/mirror/nodelvm/nodelvm:v0.1.0"},
		"registry with a port": {own(map[string]any{"repository": "localhost:5000/a/b"}, mirror), "registry.example:5000/mirror/a/b:v0.1.0"},
		"registry, local name": {own(map[string]any{"repository": "localhost/a"}, mirror), "registry.example:5000/mirror/a:v0.1.0"},
		"registry, no host":    {own(map[string]any{"repository": "team/a"}, mirror), "registry.example:5000/mirror/team/a:v0.1.0"},
	} {
		text, err := render(filepath.Join(deployDir, chartDir), c.values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := daemonSet(t, split(t, text)).Spec.Template.Spec.Containers[0].Image; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, c := range daemonSet(t, renderAll(t)).Spec.Template.Spec.Containers {
		if !strings.HasPrefix(c.Image, "registry.example:5000/mirror/") {
			t.Errorf("container %s has the image %s: not of the mirror", c.Name, c.Image)
		}
	}
}

func TestExtraArgumentsAndVolumes(t *testing.T) {
	pod := daemonSet(t, renderAll(t)).Spec.Template.Spec
	for i, want := range []string{"--some-flag=1", "--worker-threads=10", "--worker-threads=11"} {
		if c := pod.Containers[i]; !slices.Contains(c.Args, want) {
			t.Errorf("container %s lacks %s: %v", c.Name, want, c.Args)
		}
	}
	mounts, volumes := 0, 0
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.Name == "certificates" && m.MountPath == "/etc/certificates" && m.ReadOnly {
			mounts++
		}
	}
	for _, v := range pod.Volumes {
		if v.Name == "certificates" && v.Secret != nil {
			volumes++
		}
	}
	if mounts != 1 || volumes != 1 {
		t.Errorf("%d mounts, %d volumes of the extra volume", mounts, volumes)
	}
}

func TestClassesOfTheValues(t *testing.T) {
	found := 0
	for _, doc := range renderAll(t) {
		switch doc.kind.Kind + " " + doc.name {
		case "StorageClass keep":
			found++
			var c storage.StorageClass
			doc.decode(t, &c)
			if c.Labels["team"] != "storage" || c.Annotations["owner"] != "storage" || c.Annotations["nodelvm.io/on-node-loss"] != "release" ||
				len(c.AllowedTopologies) != 1 || c.AllowedTopologies[0].MatchLabelExpressions[0].Key != "topology.nodelvm.io/node" {
				t.Errorf("storage class %+v", c)
			}
		case "VolumeSnapshotClass local", "VolumeSnapshotClass keep":
			found++
			var c snapshots.VolumeSnapshotClass
			doc.decode(t, &c)
			local := doc.name == "local"
			want := map[bool]string{true: "Delete", false: "Retain"}[local]
			if c.Driver != "nodelvm.io" || string(c.DeletionPolicy) != want || (c.Labels["e"] == "f") != local ||
				(c.Annotations["snapshot.storage.kubernetes.io/is-default-class"] == "true") != local || (c.Annotations["nodelvm.io/on-node-loss"] == "release") != local {
				t.Errorf("volume snapshot class %+v", c)
			}
		}
	}
	if found != 3 {
		t.Errorf("%d of 3 classes were found", found)
	}
}

// TestReadmeListsTheValues: the chart's page is what values.yaml says.
func TestReadmeListsTheValues(t *testing.T) {
	want, err := renderReadme(deployDir)
	must(t, err)
	got, err := os.ReadFile(filepath.Join(deployDir, readme))
	must(t, err)
	if string(got) != want {
		t.Errorf("%s is not what values.yaml says: run \"make manifest\"", readme)
	}
	if rows := strings.Count(want, "\n| `"); rows < 40 {
		t.Errorf("the page lists %d values", rows)
	}
}
