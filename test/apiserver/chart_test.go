//go:build e2e

package apiserver

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// TestChartIsAccepted has a real API server judge, in a dry run, every object of the chart with all of its parts in use: those
// that the plain manifest has not. The Prometheus Operator's objects need CRDs that are not here, and are left out.
func TestChartIsAccepted(t *testing.T) {
	helm, err := cluster.HelmPath()
	must(t, err)
	const chart = "../../deploy/chart/nodelvm"
	template := exec.CommandContext(t.Context(), helm, "template", "nodelvm", chart, "--namespace", system, "--values", chart+"/ci/all-values.yaml", "--kube-version", "1.32",
		"--set", "metrics.podMonitor.enabled=false,metrics.prometheusRule.enabled=false")
	objects, err := template.Output()
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	said, err := dryRun(t, objects)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if want, got := strings.Count(string(objects), "\nkind: "), strings.Count(said, "server dry run"); got != want || want < 10 {
		t.Errorf("the API server judged %d of %d objects:\n%s", got, want, said)
	}
	if _, err := admin.StorageV1().StorageClasses().Get(t.Context(), "fixed", metav1.GetOptions{}); err == nil {
		t.Error("the dry run made a class")
	}
	wrong := bytes.Replace(objects, []byte("attachRequired: false"), []byte("attachRequired: perhaps"), 1)
	if said, err := dryRun(t, wrong); err == nil {
		t.Errorf("a wrong object was accepted:\n%s", said)
	}
}

// TestPrivilegeIsNeeded holds docs/explanation/security.md to its reason for the driver's privilege: without it the API server refuses
// the pod.
func TestPrivilegeIsNeeded(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "humble"}, Spec: manifestPod(t)}
	create(t, admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.ServiceAccountName}})
	try := func() error {
		_, err := admin.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := try(); err != nil {
		t.Fatalf("with privilege: %v", err)
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.SecurityContext.Privileged != nil {
			c.SecurityContext.Privileged = nil
			c.SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN", "MKNOD"}}
		}
	}
	if err := try(); err == nil || !strings.Contains(err.Error(), "Bidirectional mount propagation is available only to privileged containers") {
		t.Errorf("without privilege: %v", err)
	}
}

func dryRun(t *testing.T, objects []byte) (said string, err error) {
	t.Helper()
	file := t.TempDir() + "/objects.yaml"
	must(t, os.WriteFile(file, objects, 0o600))
	apply := exec.CommandContext(t.Context(), kubectl, "--server="+server, "--token="+adminPass, "--insecure-skip-tls-verify",
		"apply", "--dry-run=server", "--server-side", "--force-conflicts", "--validate=strict", "-f", file)
	out, err := apply.CombinedOutput()
	return string(out), err
}
