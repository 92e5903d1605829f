package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// kubeconfig is what csi-provisioner reads of its file.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct {
			Server                string `json:"server"`
			InsecureSkipTLSVerify bool   `json:"insecure-skip-tls-verify"` //nolint:tagliatelle // the file's own
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User map[string]string `json:"user"`
	} `json:"users"`
}

// TestAPIProxy: csi-provisioner finds the driver's proxy, with TLS, because client-go sends no token without it, and with its
// pod's token. Without the proxy it has no configuration at all.
func TestAPIProxy(t *testing.T) {
	docs := shipped(t)
	var config corev1.ConfigMap
	only(t, docs, "ConfigMap", &config)
	var file kubeconfig
	must(t, yaml.Unmarshal([]byte(config.Data["kubeconfig"]), &file))
	pod := daemonSet(t, docs).Spec.Template.Spec
	address := argument(pod, "nodelvm", "--api-proxy-address=")
	if len(file.Clusters) != 1 || file.Clusters[0].Cluster.Server != "https://"+address || !file.Clusters[0].Cluster.InsecureSkipTLSVerify {
		t.Errorf("the file names %+v, and the proxy listens on %s", file.Clusters, address)
	}
	if len(file.Users) != 1 || len(file.Users[0].User) != 1 || file.Users[0].User["tokenFile"] != "/var/run/secrets/kubernetes.io/serviceaccount/token" {
		t.Errorf("the file has the credentials %+v, want the pod's token file alone", file.Users)
	}
	path := argument(pod, "csi-provisioner", "--kubeconfig=")
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "csi-provisioner" })
	if !slices.ContainsFunc(pod.Containers[i].VolumeMounts, func(m corev1.VolumeMount) bool {
		return m.Name == "kubeconfig" && m.MountPath == filepath.Dir(path) && m.ReadOnly
	}) {
		t.Errorf("%s is not mounted: %+v", path, pod.Containers[i].VolumeMounts)
	}

	text, err := render(filepath.Join(deployDir, chartDir), map[string]any{"provisioner": map[string]any{"apiProxy": false}})
	must(t, err)
	for _, word := range []string{"9811", "kubeconfig", "api-proxy"} {
		if strings.Contains(text, word) {
			t.Errorf("without the proxy the chart still has %q", word)
		}
	}
}

// argument is the value of a container's argument.
func argument(pod corev1.PodSpec, container, name string) string {
	for _, c := range pod.Containers {
		for _, arg := range c.Args {
			if value, ok := strings.CutPrefix(arg, name); ok && c.Name == container {
				return value
			}
		}
	}
	return ""
}
