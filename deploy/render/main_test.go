package main

import (
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
	"sigs.k8s.io/yaml"
)

const deployDir = ".."

func TestManifestsAreTheRenderedChart(t *testing.T) {
	for _, name := range []string{manifest, controller} {
		want, err := renderManifest(deployDir, name)
		must(t, err)
		got, err := os.ReadFile(filepath.Join(deployDir, name))
		must(t, err)
		if string(got) == want {
			continue
		}
		g, w := strings.Split(string(got), "\n"), strings.Split(want, "\n")
		for i := range min(len(g), len(w)) {
			if g[i] != w[i] {
				t.Fatalf("deploy/%s is not what the chart gives (run \"make manifest\"); line %d is\n%s\nwant\n%s", name, i+1, g[i], w[i])
			}
		}
		t.Fatalf("deploy/%s is not what the chart gives (run \"make manifest\"): %d lines, want %d", name, len(g), len(w))
	}
}

func TestChartLints(t *testing.T) {
	for name, values := range map[string]map[string]any{"defaults": {}, "manifest": manifestValues, "all": everything(t)} {
		result := lint.All(filepath.Join(deployDir, chartDir), values, namespace, true)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, m.Error())
			}
		}
	}
}

func TestManifestsHaveExactlyTheseObjects(t *testing.T) {
	var got []string
	for _, doc := range shipped(t) {
		got = append(got, doc.kind.Kind+" "+doc.name)
	}
	want := []string{
		"CSIDriver nodelvm.io", "ClusterRole nodelvm", "ClusterRole nodelvm-metrics-reader",
		"ClusterRole nodelvm-namespaced-viewer", "ClusterRole nodelvm-operator", "ClusterRole nodelvm-viewer", "ClusterRoleBinding nodelvm", "ConfigMap nodelvm-api-proxy", "DaemonSet nodelvm",
		"Namespace nodelvm-system", "Role nodelvm", "Role nodelvm-operator", "Role nodelvm-viewer",
		"RoleBinding nodelvm", "ServiceAccount nodelvm",
		"ValidatingAdmissionPolicy nodelvm-class-field", "ValidatingAdmissionPolicy nodelvm-node-restriction", "ValidatingAdmissionPolicy nodelvm-topology-label", "ValidatingAdmissionPolicy nodelvm-volume-class",
		"ValidatingAdmissionPolicyBinding nodelvm-class-field", "ValidatingAdmissionPolicyBinding nodelvm-node-restriction", "ValidatingAdmissionPolicyBinding nodelvm-topology-label", "ValidatingAdmissionPolicyBinding nodelvm-volume-class",
	}
	expectObjects(t, got, want)
	got, want = nil, []string{
		"ClusterRole nodelvm-controller", "ClusterRoleBinding nodelvm-controller", "Deployment nodelvm-controller",
		"Role nodelvm-controller", "RoleBinding nodelvm-controller", "ServiceAccount nodelvm-controller",
		"ValidatingAdmissionPolicy nodelvm-controller-restriction", "ValidatingAdmissionPolicyBinding nodelvm-controller-restriction",
	}
	for _, doc := range splitController(t) {
		got = append(got, doc.kind.Kind+" "+doc.name)
	}
	expectObjects(t, got, want)
}

func expectObjects(t *testing.T, got, want []string) {
	t.Helper()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("objects\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func checkClass(t *testing.T, doc document) *storage.StorageClass {
	t.Helper()
	var class storage.StorageClass
	must(t, yaml.Unmarshal([]byte(doc.text), &class))
	if class.Provisioner != "nodelvm.io" || class.VolumeBindingMode == nil ||
		*class.VolumeBindingMode != storage.VolumeBindingWaitForFirstConsumer || class.Parameters["volumeGroup"] == "" {
		t.Errorf("class %s would not work: %+v", class.Name, class)
	}
	return &class
}

// TestImagesAreThoseThatAreTested ties the chart to the file of versions, which the lab runs.
func TestImagesAreThoseThatAreTested(t *testing.T) {
	versions := map[string]string{}
	text, err := os.ReadFile(filepath.Join(deployDir, "..", "versions.env"))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			versions[key] = value
		}
	}
	pod := daemonSet(t, shipped(t)).Spec.Template.Spec
	want := map[string]string{
		"nodelvm":         "ghcr.io/nodelvm/nodelvm:v0.1.0",
		"csi-provisioner": "registry.k8s.io/sig-storage/csi-provisioner:" + versions["CSI_PROVISIONER_VERSION"],
		"csi-snapshotter": "registry.k8s.io/sig-storage/csi-snapshotter:" + versions["CSI_SNAPSHOTTER_VERSION"],
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
	must(t, err)
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

// TestPodKeepsItsPromises holds the pod, with every part of the chart in use and without, to what docs/explanation/security.md says of it.
func TestPodKeepsItsPromises(t *testing.T) {
	for name, docs := range map[string][]document{"manifest": shipped(t), "all": renderWith(t, everything(t))} {
		t.Run(name, func(t *testing.T) { checkPod(t, daemonSet(t, docs).Spec.Template.Spec) })
	}
}

func checkPod(t *testing.T, pod core.PodSpec) {
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares a namespace of the host")
	}
	if pod.TerminationGracePeriodSeconds == nil || *pod.TerminationGracePeriodSeconds != 600 {
		t.Errorf("grace period %v, want 600 s", pod.TerminationGracePeriodSeconds)
	}
	hosts := map[string]string{}
	for _, v := range pod.Volumes {
		if v.HostPath != nil {
			hosts[v.Name] = v.HostPath.Path
		}
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if _, limited := c.Resources.Limits[core.ResourceMemory]; limited {
			t.Errorf("container %s has a memory limit", c.Name)
		}
		ours := c.Name == "nodelvm" || c.Name == "prepare"
		checkPorts(t, c)
		checkPrivileges(t, c.Name, *c.SecurityContext, ours)
		for _, m := range c.VolumeMounts {
			if c.Name == "prepare" && m.Name == "kubelet" && m.ReadOnly && m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationHostToContainer {
				continue // it only looks
			}
			bidirectional := m.MountPropagation != nil && *m.MountPropagation == core.MountPropagationBidirectional
			if bidirectional != (m.Name == "kubelet") {
				t.Errorf("container %s, mount %s: bidirectional is %v", c.Name, m.Name, bidirectional)
			}
			host := hosts[m.Name]
			if ours && host != "" && host != m.MountPath || !ours && m.Name != "socket" && m.Name != "kubeconfig" {
				t.Errorf("container %s: host path %q is seen as %s", c.Name, host, m.MountPath)
			}
		}
	}
}

// checkPorts: from outside the pod only the driver is reached, which asks for a token; it serves the sidecars' metrics.
func checkPorts(t *testing.T, c core.Container) {
	driver := c.Name == "nodelvm"
	if driver != (len(c.Ports) > 0) {
		t.Errorf("container %s has the ports %v", c.Name, c.Ports)
	}
	for _, arg := range c.Args {
		if address, ok := strings.CutPrefix(arg, "--api-proxy-address="); ok && !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("container %s serves the proxy of the Kubernetes API at %s", c.Name, address)
		}
		if address, ok := strings.CutPrefix(arg, "--http-endpoint="); ok && !driver && !strings.HasPrefix(address, "127.0.0.1:") {
			t.Errorf("container %s serves metrics without authentication at %s", c.Name, address)
		}
	}
}

// checkPrivileges: only the driver's own containers have any.
func checkPrivileges(t *testing.T, name string, context core.SecurityContext, ours bool) {
	is := func(value *bool) bool { return value != nil && *value }
	if is(context.Privileged) != ours {
		t.Errorf("container %s: privileged is %v", name, is(context.Privileged))
	}
	if !is(context.ReadOnlyRootFilesystem) {
		t.Errorf("container %s can write its root file system", name)
	}
	if ours {
		return
	}
	if context.AllowPrivilegeEscalation == nil || is(context.AllowPrivilegeEscalation) {
		t.Errorf("container %s may gain privileges", name)
	}
	if context.Capabilities == nil || !slices.Equal(context.Capabilities.Drop, []core.Capability{"ALL"}) || len(context.Capabilities.Add) > 0 {
		t.Errorf("container %s has the capabilities %+v", name, context.Capabilities)
	}
	if context.SeccompProfile == nil || context.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("container %s has the seccomp profile %+v", name, context.SeccompProfile)
	}
}
