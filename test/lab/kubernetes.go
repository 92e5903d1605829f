package lab

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// EnvKubernetes names another version of Kubernetes than that of versions.env, for the matrix of versions. The sidecars are still
// compiled against that of versions.env, as they are in their published images.
const EnvKubernetes = "NODELVM_KUBERNETES_VERSION"

// Keys of versions that versions.env does not have.
const (
	sidecarsKubernetes = "SIDECARS_KUBERNETES_VERSION"
	sidecarsStaging    = "SIDECARS_KUBERNETES_STAGING_VERSION"
)

// replacedStaging are staging modules of a release that no proxy serves in its version, with one that does.
var replacedStaging = map[string]map[string]string{
	"v1.32.13": {
		"k8s.io/cri-client": "v0.32.3", "k8s.io/csi-translation-lib": "v0.32.3", "k8s.io/endpointslice": "v0.32.2",
		"k8s.io/kube-controller-manager": "v0.32.2", "k8s.io/kube-scheduler": "v0.32.9",
	},
}

var kubernetesVersion = regexp.MustCompile(`^v1\.[0-9]+\.[0-9]+$`)

// withKubernetes answers the versions for a cluster of another Kubernetes; "": of that of versions.env.
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

// sidecars are the commands that are compiled as guests.
var sidecars = []string{"csi-provisioner", "csi-snapshotter", "snapshot-controller"}

// split answers the modules of a cluster whose Kubernetes is another one than its sidecars': the usual module gives the sidecars, and one
// without guests, with its own folder in the cache, the rest.
func split(usual module, v versions) []module {
	other := module{
		name: "kubernetes-" + v["KUBERNETES_VERSION"], path: usual.path, version: v["KUBERNETES_VERSION"],
		staging: v["KUBERNETES_STAGING_VERSION"], ldflags: versionFlags(v["KUBERNETES_VERSION"]), commands: maps.Clone(usual.commands),
	}
	maps.DeleteFunc(other.commands, func(command, _ string) bool { return slices.Contains(sidecars, command) })
	return []module{usual, other}
}

// stagingVersion is the version of a staging module of Kubernetes.
func (m module) stagingVersion(name string) string {
	if version, ok := replacedStaging[m.version][name]; ok {
		return version
	}
	return m.staging
}
