package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

//go:embed files/worker.sh
var workerScript string

//go:embed files/kubelet.yaml
var kubeletConfig string

//go:embed files/containerd.toml
var containerdConfig string

//go:embed files/cni.json
var cniConfig string

// writeWorkerFiles writes the files that a worker needs to join the cluster to the share.
func (l *Lab) writeWorkerFiles(nodes []node) error {
	errs := []error{
		l.writePKI(nodes),
		os.WriteFile(filepath.Join(l.systemDir(), "worker.sh"), []byte(workerScript), 0o755),
		l.writeContainerdConfig(),
	}
	for _, n := range nodes {
		errs = append(errs,
			writeTemplate(l.nodeFile(n, "kubelet.yaml"), kubeletConfig, map[string]string{"Node": n.name(), "FeatureGates": l.gates.yaml()}),
			writeTemplate(l.nodeFile(n, "cni.json"), cniConfig, map[string]string{"PodCIDR": n.podCIDR()}))
	}
	return errors.Join(errs...)
}

func (l *Lab) writeContainerdConfig() error {
	return writeTemplate(filepath.Join(l.systemDir(), "containerd.toml"), containerdConfig,
		map[string]string{"Pause": l.pauseImage()})
}

func writeTemplate(file, text string, values map[string]string) error {
	t, err := template.New(filepath.Base(file)).Option("missingkey=error").Parse(text)
	if err != nil {
		return err
	}
	var b strings.Builder
	if err := t.Execute(&b, values); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

// waitReady waits until every node is Ready.
func (l *Lab) waitReady(ctx context.Context, nodes []node, tell teller) error {
	config, err := l.RESTConfig()
	if err != nil {
		return err
	}
	config.Timeout = pollTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	daemons := append([]string{}, controlPlaneNames...)
	for _, n := range nodes {
		daemons = append(daemons, n.name())
	}
	return l.poll(ctx, bootTimeout, nodes[0].name()+".kubelet", daemons, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, n := range list.Items {
			if isReady(&n) {
				ready++
			}
		}
		tell(ready, len(nodes), "")
		if ready < len(nodes) {
			return fmt.Errorf("%d of %d nodes are Ready", ready, len(nodes))
		}
		return nil
	})
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
