//go:build e2e

package apiserver

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TestMetricsReaders: the driver's account may ask who a reader is and what they may, and the ClusterRole of the chart is what lets
// one read.
func TestMetricsReaders(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubeclient.NewClientFor(here.restConfig())
	must(t, err)
	reader, other := accountToken(t, "metrics-reader"), accountToken(t, "metrics-other")
	binding, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "nodelvm-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: "metrics-reader"}}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}))
	})
	pages := []string{"/metrics", "/metrics/csi-provisioner", "/metrics/csi-snapshotter", "/v1/status"}
	soon(t, "the API server goes by the binding", func() bool {
		decision, err := kube.NewAccess(client).Review(t.Context(), reader, pages[0])
		return err == nil && decision == kube.Granted
	})
	access := kube.NewAccess(client)
	expect := func(token, path string, want kube.Decision) {
		t.Helper()
		if got, err := access.Review(t.Context(), token, path); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", path, got, err, want)
		}
	}
	for _, path := range pages {
		expect(reader, path, kube.Granted)
	}
	expect(reader, "/debug", kube.Forbidden)
	expect(other, pages[0], kube.Forbidden)
	expect(here.token, pages[3], kube.Forbidden) // one node's driver reads no other's page
	expect("nonsense", pages[0], kube.Unauthenticated)
}

// accountToken makes a service account, and answers its token.
func accountToken(t *testing.T, name string) string {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts(system)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, accounts.Delete(context.Background(), name, metav1.DeleteOptions{})) })
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	return token.Status.Token
}
