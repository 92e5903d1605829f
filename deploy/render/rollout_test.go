package main

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
)

// TestBrokenUpdateStops: every container says itself whether it works, and the next node waits until it has said so for a while. The
// driver answers for the sidecars, whose addresses it knows and whose own ports only the pod reaches.
func TestBrokenUpdateStops(t *testing.T) {
	set := daemonSet(t, renderAll(t))
	if set.Spec.MinReadySeconds < 10 {
		t.Errorf("minReadySeconds is %d", set.Spec.MinReadySeconds)
	}
	driver := set.Spec.Template.Spec.Containers[0]
	known := driver.Args[slices.IndexFunc(driver.Args, func(arg string) bool { return strings.HasPrefix(arg, "--sidecar-metrics=") })]
	for _, c := range set.Spec.Template.Spec.Containers {
		probe := c.ReadinessProbe
		if probe == nil || probe.HTTPGet == nil {
			t.Errorf("container %s has no readiness probe", c.Name)
			continue
		}
		if c.Name == driver.Name {
			continue
		}
		if probe.HTTPGet.Path != "/readyz/"+c.Name || probe.HTTPGet.Port.IntValue() != int(driver.Ports[0].ContainerPort) || !strings.Contains(known, c.Name+"=127.0.0.1:") {
			t.Errorf("container %s is probed at %+v, and the driver knows %s", c.Name, probe.HTTPGet, known)
		}
	}
}

// TestUninstallKeepsCSIDriver: without this object Kubernetes would wait for an attachment of each volume in use.
func TestUninstallKeepsCSIDriver(t *testing.T) {
	for _, doc := range renderAll(t) {
		if doc.kind.Kind != "CSIDriver" {
			continue
		}
		var d storage.CSIDriver
		doc.decode(t, &d)
		if d.Annotations["helm.sh/resource-policy"] != "keep" || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired {
			t.Errorf("the CSIDriver is %+v", d)
		}
		return
	}
	t.Error("no CSIDriver is rendered")
}

// TestKernelModulesDir: the modules come from the directory of the value; without one, no container mounts any.
func TestKernelModulesDir(t *testing.T) {
	for dir, want := range map[string]string{"/run/booted-system/kernel-modules/lib/modules": "DirectoryOrCreate", "": ""} {
		pod := daemonSet(t, renderWith(t, map[string]any{"kernelModulesDir": dir, "volumeGroups": []any{map[string]any{"name": "vg", "devices": []any{map[string]any{"paths": []any{"/dev/sdb"}}}}}})).Spec.Template.Spec
		got := ""
		for _, v := range pod.Volumes {
			if v.Name == "modules" && v.HostPath != nil && v.HostPath.Path == dir {
				got = string(*v.HostPath.Type)
			}
		}
		mounts := 0
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == "modules" && m.MountPath == "/lib/modules" && m.ReadOnly
			}) {
				mounts++
			}
		}
		if got != want || (mounts == 2) != (dir != "") || dir == "" && mounts > 0 {
			t.Errorf("%q: the host path has the type %q, and %d containers mount it", dir, got, mounts)
		}
	}
}
