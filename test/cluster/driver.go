package cluster

import (
	"strconv"

	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	DriverNamespace = "nodelvm-system"
	DaemonSet       = "daemonset/nodelvm"
)

// ApplyDriver applies the manifest. In a kept lab it also restarts the driver, which may be an older build under the same name.
func (c *Cluster) ApplyDriver(ctx context.Context, manifest string) error {
	_, err := c.Client.AppsV1().DaemonSets(DriverNamespace).Get(ctx, "nodelvm", metav1.GetOptions{})
	kept := err == nil
	if _, err := c.Kubectl(ctx, "", "apply", "-f", manifest); err != nil || !kept {
		return err
	}
	_, err = c.Kubectl(ctx, "", "rollout", "restart", "-n", DriverNamespace, DaemonSet)
	return err
}

func (c *Cluster) DriverPods(ctx context.Context) (names []string, err error) {
	pods, err := c.Client.CoreV1().Pods(DriverNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=nodelvm"})
	if err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	return names, nil
}

// NodePods returns the driver's pods. It fails unless their number is that of the nodes.
func (c *Cluster) NodePods(ctx context.Context) ([]corev1.Pod, error) {
	pods, err := c.Client.CoreV1().Pods(DriverNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=node"})
	if err != nil {
		return nil, err
	}
	if want := len(c.Lab.NodeNames()); len(pods.Items) != want {
		return nil, fmt.Errorf("%d driver pods, want %d", len(pods.Items), want)
	}
	return pods.Items, nil
}

// ResidentMemory returns the memory of a node's oldest process of that name, in KiB. A new child has its parent's name for a
// moment.
func (c *Cluster) ResidentMemory(ctx context.Context, node, name string) (int, error) {
	return c.memory(ctx, node, name, "VmRSS")
}

// PeakMemory returns the most memory that such a process has had since its start, in KiB.
func (c *Cluster) PeakMemory(ctx context.Context, node, name string) (int, error) {
	return c.memory(ctx, node, name, "VmHWM")
}

func (c *Cluster) memory(ctx context.Context, node, name, field string) (int, error) {
	out, err := c.RunOnNode(ctx, node, "sh", "-ec", "grep "+field+" /proc/$(pgrep -ox "+name+")/status")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(out))
	if len(fields) != 3 {
		return 0, fmt.Errorf("unreadable: %q", out)
	}
	return strconv.Atoi(fields[1])
}
