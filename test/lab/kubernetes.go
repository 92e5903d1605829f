package lab

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// EnvKubernetes is the variable that selects another version of Kubernetes than versions.env, for the version matrix. The sidecars
// are still compiled against the version of versions.env, as in their published images.
const EnvKubernetes = "NODELVM_KUBERNETES_VERSION"

// Keys of versions that withKubernetes adds to those of versions.env.
const (
	sidecarsKubernetes = "SIDECARS_KUBERNETES_VERSION"
	sidecarsStaging    = "SIDECARS_KUBERNETES_STAGING_VERSION"
)

// replacedStaging lists staging modules whose version for a release no Go module proxy serves, with a version that one serves.
var replacedStaging = map[string]map[string]string{
	"v1.32.13": {
		"k8s.io/cri-client": "v0.32.3", "k8s.io/csi-translation-lib": "v0.32.3", "k8s.io/endpointslice": "v0.32.2",
		"k8s.io/kube-controller-manager": "v0.32.2", "k8s.io/kube-scheduler": "v0.32.9",
	},
}

var kubernetesVersion = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)

// withKubernetes returns the versions for a cluster with this version of Kubernetes; "" means that of versions.env.
func (v versions) withKubernetes(version string) (versions, error) {
	v = maps.Clone(v)
	v[sidecarsKubernetes], v[sidecarsStaging] = v["KUBERNETES_VERSION"], v["KUBERNETES_STAGING_VERSION"]
	if version == "" {
		return v, nil
	}
	if !kubernetesVersion.MatchString(version) {
		return nil, fmt.Errorf("%s is %q; set it to a version such as v1.34.4", EnvKubernetes, version)
	}
	v["KUBERNETES_VERSION"], v["KUBERNETES_STAGING_VERSION"] = version, "v0."+strings.TrimPrefix(version, "v1.")
	return v, nil
}

// sidecars are the commands that the lab compiles as guests.
var sidecars = []string{"csi-provisioner", "csi-snapshotter", "snapshot-controller"}

// split returns the modules for a cluster with another version of Kubernetes than its sidecars': the usual module for the sidecars,
// and one without guests, with its own folder in the cache, for all other commands.
func split(usual module, v versions) []module {
	other := module{
		name: "kubernetes-" + v["KUBERNETES_VERSION"], path: usual.path, version: v["KUBERNETES_VERSION"],
		staging: v["KUBERNETES_STAGING_VERSION"], ldflags: versionFlags(v["KUBERNETES_VERSION"]), commands: maps.Clone(usual.commands),
	}
	maps.DeleteFunc(other.commands, func(command, _ string) bool { return slices.Contains(sidecars, command) })
	return []module{usual, other}
}

// stagingVersion returns the version of a staging module of Kubernetes.
func (m module) stagingVersion(name string) string {
	if version, ok := replacedStaging[m.version][name]; ok {
		return version
	}
	return m.staging
}
