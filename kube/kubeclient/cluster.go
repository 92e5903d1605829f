package kubeclient

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterID returns the UID of the namespace kube-system, which identifies a cluster for its whole life. An error says that
// the API server was unreachable or that the token may not read the namespace.
func ClusterID(ctx context.Context, client *Client) (string, error) {
	var ns corev1.Namespace
	if err := client.Core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).Do(ctx).Into(&ns); err != nil {
		return "", fmt.Errorf("cannot read the UID of namespace %s, which identifies this cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
