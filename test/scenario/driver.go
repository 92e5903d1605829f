package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// DriverPodOn returns the driver's pod on a node; one that is being deleted does not count.
func (env *Environment) DriverPodOn(ctx context.Context, node string) (corev1.Pod, error) {
	pods, err := env.Client.CoreV1().Pods(cluster.DriverNamespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return corev1.Pod{}, err
	}
	running := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(running) != 1 {
		return corev1.Pod{}, fmt.Errorf("%d driver pods on %s", len(running), node)
	}
	return running[0], nil
}

// ApplyDriverWith applies deploy/nodelvm.yaml with words replaced: oldNew is pairs of them.
func (env *Environment) ApplyDriverWith(ctx context.Context, oldNew ...string) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(top, "deploy", "nodelvm.yaml"))
	if err != nil {
		return err
	}
	_, err = env.Kubectl(ctx, strings.NewReplacer(oldNew...).Replace(string(text)), "apply", "-f", "-")
	return err
}

// ApplyChart installs what the chart renders for this cluster's version with these values (NAME=VALUE), and waits for it.
func (env *Environment) ApplyChart(ctx context.Context, values ...string) error {
	top, err := cluster.Checkout()
	if err != nil {
		return err
	}
	helm, err := cluster.HelmPath()
	if err != nil {
		return err
	}
	kubernetes, err := env.Kubectl(ctx, "", "get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.kubeletVersion}")
	if err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, helm, "template", "nodelvm", filepath.Join(top, "deploy", "chart", "nodelvm"), "--namespace", cluster.DriverNamespace,
		"--kube-version", kubernetes, "--set", strings.Join(append([]string{"createNamespace=true"}, values...), ",")).Output()
	if err != nil {
		return fmt.Errorf("helm template: %w", err)
	}
	if _, err := env.Kubectl(ctx, string(text), "apply", "-f", "-"); err != nil {
		return err
	}
	return env.WaitDriverRolledOut(ctx)
}

// WaitDriverRolledOut waits until the driver's DaemonSet is ready on every node.
func (env *Environment) WaitDriverRolledOut(ctx context.Context) error {
	_, err := env.Kubectl(ctx, "", "rollout", "status", "-n", cluster.DriverNamespace, cluster.DaemonSet)
	return err
}

// RestoreDriver installs the driver as shipped, after ApplyDriverWith, and waits for it.
func RestoreDriver(ctx context.Context, env *Environment) error {
	if err := env.ApplyDriverWith(ctx); err != nil {
		return err
	}
	return env.WaitDriverRolledOut(ctx)
}

// ClientAsDriver returns a client with a token like that of the driver's pod on a node: bound to that pod.
func (env *Environment) ClientAsDriver(ctx context.Context, node string) (kubernetes.Interface, error) {
	pod, err := env.DriverPodOn(ctx, node)
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: types.UID(pod.UID)},
	}}
	granted, err := env.Client.CoreV1().ServiceAccounts(cluster.DriverNamespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config, err := env.Lab.RESTConfig()
	if err != nil {
		return nil, err
	}
	config = rest.AnonymousClientConfig(config)
	config.BearerToken = granted.Status.Token
	return kubernetes.NewForConfig(config)
}

// RebootNode boots a node again, after what a shutdown leaves: everything written, every file system read-only. The kernel is only asked for that, and says
// when it is done.
func (env *Environment) RebootNode(ctx context.Context, node string) error {
	if _, err := env.RunOnNode(ctx, node, "sh", "-ec", "sync; echo u > /proc/sysrq-trigger"); err != nil {
		return err
	}
	readOnly := func() error {
		_, err := env.RunOnNode(ctx, node, "sh", "-c", "dmesg | grep 'Emergency Remount complete'")
		return err
	}
	if err := cluster.Eventually(ctx, readOnly); err != nil {
		return err
	}
	if err := env.Lab.PowerCut(node); err != nil {
		return err
	}
	return env.Lab.Boot(ctx, node)
}
