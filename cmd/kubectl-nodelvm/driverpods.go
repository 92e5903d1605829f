package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

const (
	driverPods      = "app.kubernetes.io/name=nodelvm,app.kubernetes.io/component=node" // the labels that the chart sets
	driverContainer = "nodelvm"
	socketDirectory = "/plugins/" + api.DriverName // below the kubelet's root directory
)

// drivers lists the driver's pods.
func (c *cluster) drivers(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := list[corev1.Pod](ctx, c.in("", "pods").Param("labelSelector", driverPods))
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return !isDriver(&pod.Spec) }), err
}

// isDriver reports whether a pod with the driver's labels may be the driver: it is privileged on the host, and has the directory of
// the driver's socket. Anyone who may create pods can set the labels. Whoever may create such a pod is root on its node.
func isDriver(spec *corev1.PodSpec) bool {
	privileged := slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		return c.Name == driverContainer && c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
	})
	socket := slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.HostPath != nil && strings.HasSuffix(path.Clean(v.HostPath.Path), socketDirectory)
	})
	return privileged && socket && ptr.Deref(spec.HostUsers, true)
}

// driverSet returns the driver's DaemonSet; nil: there is none. The API server refuses privileged pods to a tenant, but no DaemonSet
// of such pods. So the DaemonSet must be in the namespace of a driver pod; without any driver pod it must be the only one.
func driverSet(sets []appsv1.DaemonSet, pods []corev1.Pod) (*appsv1.DaemonSet, error) {
	var names []string
	var found *appsv1.DaemonSet
	for i, set := range sets {
		among := slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Namespace == set.Namespace })
		switch {
		case !isDriver(&set.Spec.Template.Spec):
		case among:
			return &sets[i], nil
		case len(pods) == 0:
			found, names = &sets[i], append(names, set.Namespace+"/"+set.Name)
		}
	}
	if len(names) > 1 {
		return nil, fmt.Errorf("none of them has a pod, so any of %s may be the driver's", strings.Join(names, ", "))
	}
	return found, nil
}
