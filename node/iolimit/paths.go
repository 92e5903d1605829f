package iolimit

import (
	"path"
	"regexp"
	"strings"
)

// uid is what the UID of a pod looks like; that of a static pod is a digest. It becomes part of a path.
var uid = regexp.MustCompile(`^[0-9a-zA-Z][0-9a-zA-Z-]{0,63}$`)

// PodOf returns the UID of the pod for which the kubelet publishes a volume at a path; "": no pod's. The UID is the name of a folder of the
// kubelet's, and not of a tenant's object (k8s.io/kubernetes/pkg/volume/csi, "SetUpAt" and "getPublishPath").
func PodOf(target string) string {
	names := strings.Split(target, "/")
	n, found := len(names), ""
	switch {
	case n >= 6 && names[n-1] == "mount" && names[n-3] == "kubernetes.io~csi" && names[n-4] == "volumes" && names[n-6] == "pods":
		found = names[n-5] // pods/UID/volumes/kubernetes.io~csi/NAME/mount
	case n >= 4 && names[n-3] == "publish" && names[n-4] == "volumeDevices":
		found = names[n-1] // volumeDevices/publish/NAME/UID
	}
	if !uid.MatchString(found) {
		return ""
	}
	return found
}

// systemd is the end of a cgroup's name that systemd manages.
const systemd = ".slice"

// isOfPods reports whether a cgroup has the name that the kubelet gives to the cgroup of all pods. With systemd as the kubelet's cgroup
// driver, and another --cgroup-root, the parents' names are before it.
func isOfPods(name string) bool {
	return name == "kubepods" || name == "kubepods"+systemd || strings.HasSuffix(name, "-kubepods"+systemd)
}

// podDirs returns the places where the kubelet makes the cgroup of a pod, below the cgroup of all pods: one for each quality of service
// (k8s.io/kubernetes/pkg/kubelet/cm, "GetPodContainerName" and "ToSystemd").
func podDirs(pods, pod string) []string {
	name, slice := strings.CutSuffix(path.Base(pods), systemd)
	if !slice {
		pod = "pod" + pod
		return []string{path.Join(pods, "burstable", pod), path.Join(pods, pod), path.Join(pods, "besteffort", pod)}
	}
	pod = "-pod" + strings.ReplaceAll(pod, "-", "_") + systemd
	dirs := []string{path.Join(pods, name+pod)}
	for _, class := range []string{"-burstable", "-besteffort"} {
		dirs = append(dirs, path.Join(pods, name+class+systemd, name+class+pod))
	}
	return dirs
}
