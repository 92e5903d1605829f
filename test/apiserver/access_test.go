//go:build e2e

package apiserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TestMetricsReaders: the driver's account may ask who a reader is and what they may, and the ClusterRole of the chart is what lets
// one read.
func TestMetricsReaders(t *testing.T) {
	here := newNode(t, "a")
	client, err := kubeclient.NewClientFor(config(here.token))
	must(t, err)
	accounts := admin.CoreV1().ServiceAccounts(system)
	token := func(name string) string {
		create(t, accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
		return tokenOfAccount(t, name)
	}
	reader, other := token("metrics-reader"), token("metrics-other")
	create(t, admin.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader"},
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "nodelvm-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: "metrics-reader"}}})
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

	// The right is that of a path, which the API server has too (docs/explanation/security.md).
	for token, want := range map[string]bool{reader: true, other: false} {
		client, err := kubernetes.NewForConfig(config(token))
		must(t, err)
		if err := client.RESTClient().Get().AbsPath(pages[0]).Do(t.Context()).Error(); (err == nil) != want {
			t.Errorf("the API server's own /metrics: %v, may: %t", err, want)
		}
	}
}
