package scenario

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// RunsOn waits until a pod is Ready, and fails if it is on another node.
func (env *Environment) RunsOn(ctx context.Context, name, node string) error {
	pod, err := env.WaitPodReady(ctx, name)
	if err == nil && pod.Spec.NodeName != node {
		err = fmt.Errorf("pod %s runs on %s, not on %s", name, pod.Spec.NodeName, node)
	}
	return err
}

// ContainerOf describes the run of a pod's first container: a restart changes what it returns.
func ContainerOf(pod *corev1.Pod) string {
	status := pod.Status.ContainerStatuses[0]
	return fmt.Sprintf("%s of pod %s, restarted %d times", status.ContainerID, pod.UID, status.RestartCount)
}

// CheckRestarted fails unless the API knows that the pod's container ended and runs again.
func (env *Environment) CheckRestarted(ctx context.Context, name string) error {
	pod, err := env.WaitPodReady(ctx, name)
	if err != nil {
		return err
	}
	if pod.Status.ContainerStatuses[0].RestartCount == 0 {
		return fmt.Errorf("the pod says that it never ended: %s", ContainerOf(pod))
	}
	return nil
}

// ExecInPodAgain runs a command in a pod whose node was away, as soon as that is possible. An earlier connection may be blocked.
func (env *Environment) ExecInPodAgain(ctx context.Context, pod string, argv ...string) (answer string, err error) {
	err = cluster.Eventually(ctx, func() error {
		brief, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		answer, err = env.ExecInPod(brief, pod, argv...)
		return err
	})
	return answer, err
}

// FileSystemSize asks df in a pod for the bytes of the file system at path.
func (env *Environment) FileSystemSize(ctx context.Context, pod, path string) (int64, error) {
	out, err := env.ExecInPod(ctx, pod, "df", "-k", "-P", path)
	if err != nil {
		return 0, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 2 {
		return 0, fmt.Errorf("df in %s answered %q", pod, out)
	}
	kib, err := strconv.ParseInt(fields[1], 10, 64)
	return kib << 10, err
}

// PodWithClaim returns what a step does to create a pod, and a claim of its name; node "" means any. It waits for neither.
func PodWithClaim(name, class, size, node string) func(context.Context, *Environment) error {
	return func(ctx context.Context, env *Environment) error {
		selector := "{}"
		if node != "" {
			selector = "{kubernetes.io/hostname: " + node + "}"
		}
		return env.ApplyWith(ctx, "planted-pod.yaml", "NAME", name, "CLASS", class, "SIZE", size, "SELECTOR", selector)
	}
}

// PatternCommand is the command that prints 4 MiB, always the same: a pod can check what another has written.
const PatternCommand = `seq 1 1000000 | head -c 4194304`
