package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClusterID is the UID of the namespace kube-system: the name that a cluster keeps for life, and shares with no other.
// The error is the API server's: it could not be reached, or the token may not read that namespace.
func ClusterID(ctx context.Context, client *Client) (string, error) {
	var ns corev1.Namespace
	if err := client.core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).Do(ctx).Into(&ns); err != nil {
		return "", fmt.Errorf("the UID of namespace %s, which names this cluster, cannot be read: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}
