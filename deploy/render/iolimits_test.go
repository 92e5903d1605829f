package main

import (
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestIOLimits: with I/O limits, the container nodelvm alone gets the node's cgroups and the UID of its pod; without them, nothing of that is
// in the pod.
func TestIOLimits(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   bool
	}{
		"default": {nil, false},
		"off":     {map[string]any{"ioLimits": map[string]any{"enabled": false}}, false},
		"on":      {map[string]any{"ioLimits": map[string]any{"enabled": true}}, true},
	} {
		pod := daemonSet(t, renderWith(t, c.values)).Spec.Template.Spec
		isCgroup := func(v core.Volume) bool {
			return v.HostPath != nil && strings.HasPrefix(v.HostPath.Path, "/sys/fs/cgroup")
		}
		if slices.ContainsFunc(pod.Volumes, isCgroup) != c.want {
			t.Errorf("%s: volumes %+v", name, pod.Volumes)
		}
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			want := c.want && container.Name == "nodelvm"
			mounts := slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool {
				return m.Name == "cgroup" && m.MountPath == "/sys/fs/cgroup" && !m.ReadOnly
			})
			uid := slices.ContainsFunc(container.Env, func(e core.EnvVar) bool {
				return e.Name == "POD_UID" && e.ValueFrom.FieldRef.FieldPath == "metadata.uid"
			})
			if args := slices.Contains(container.Args, "--io-limits=/sys/fs/cgroup"); mounts != want || uid != want || args != want {
				t.Errorf("%s: container %s: mount %t, UID %t, flags %t", name, container.Name, mounts, uid, args)
			}
		}
	}
}
