package pending

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// event is one about the claim, which csi-provisioner in the pod nodelvm-2 wrote some seconds ago.
func event(reason, message string, seconds, count int) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, Count: int32(count),
		LastTimestamp: metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second)), Source: corev1.EventSource{Component: "nodelvm.io_nodelvm-2_0d9f"}}
}

const failed = `failed to provision volume with StorageClass "local": `

// TestRefusals: the last event about the claim is quoted before anything that the objects suggest.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *Facts)
		want   []string
		not    string
	}{
		"the driver's refusal": {func(f *Facts) {
			f.Claim.Annotations[api.AnnotationSelectedNode] = "node-2"
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = Aborted desc = retry", 90, 1),
				event("ProvisioningFailed", failed+"rpc error: code = Internal desc = the kernel has no dm-thin-pool", 6, 6), event("Provisioning", "External", 7, 6)}
		}, []string{"node-2's driver refused 6 times, last 6 s ago: the kernel has no dm-thin-pool\nfix: resolve that: csi-provisioner repeats the request"}, "unknown"},
		"an invalid claim": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", "Volume provisioning failed with infeasible error. Retries will be delayed. rpc error: code = InvalidArgument desc = access mode ReadWriteMany is not possible", 300, 1)}
		}, []string{"node-2's driver refused 5 min ago: access mode ReadWriteMany is not possible\nfix: change what it names: delete claim data, or StorageClass local"}, ""},
		"no capacity": {func(f *Facts) {
			f.Claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("20Gi")
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = ResourceExhausted desc = too full", 6, 1)}
		}, []string{"node-2's driver refused 6 s ago: too full\nfix: \nno node can have the volume\nfix: request at most 10 GiB"}, ""},
		"csi-provisioner's own error": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"error generating accessibility requirements: no topology key found on CSINode node-2", 6, 1)}
		}, []string{"node-2's csi-provisioner refused 6 s ago: error generating accessibility requirements"}, "StorageClass"},
		"a driver that does not answer": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = DeadlineExceeded desc = context deadline exceeded", 6, 2)}
		}, []string{"node-2's driver did not answer csi-provisioner, 2 times, last 6 s ago: context deadline exceeded"}, "refused"},
		"a copy under way": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = Aborted desc = 1 MiB of 448 MiB are here", 6, 2)}
		}, []string{"node-2's driver put it off 2 times, last 6 s ago: 1 MiB of 448 MiB are here\nfix: wait: csi-provisioner repeats the request"}, "refused"},
		"a pod that is gone": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = Internal desc = x", 6, 1)}
			f.Events[0].Source.Component = "nodelvm.io_nodelvm-9_0d9f"
		}, []string{"the driver refused 6 s ago: x"}, ""},
		"the driver's warning": {func(f *Facts) {
			f.Events = []corev1.Event{event(api.ReasonInsufficientCapacityForPod, "pod db-0 cannot be scheduled", 6, 1)}
		}, []string{"event InsufficientCapacityForPod, 6 s ago: pod db-0 cannot be scheduled"}, ""},
		"a request without an answer": {func(f *Facts) {
			f.Claim.Annotations[api.AnnotationSelectedNode] = "node-2"
			f.Events = []corev1.Event{event("Provisioning", "External provisioner", 6, 1)}
		}, []string{"csi-provisioner asked the driver for it 6 s ago, and no event has the answer", "kubectl -n nodelvm-system logs nodelvm-2 -c csi-provisioner"}, ""},
		"the same as of the class": {func(f *Facts) {
			eachNode(f, func(n *Node) { n.Refused = "unknown parameter" })
			f.Events = []corev1.Event{event("ProvisioningFailed", failed+"rpc error: code = InvalidArgument desc = unknown parameter", 6, 1)}
		}, []string{"unknown parameter\nfix: delete StorageClass local"}, "refused"},
		"an endless message": {func(f *Facts) {
			f.Events = []corev1.Event{event("ProvisioningFailed", strings.Repeat("x", 1<<20), 6, 1)}
		}, []string{"x…"}, strings.Repeat("x", messageBytes+1)},
	} {
		f := twoNodes()
		f.Now, f.Namespace = now, "nodelvm-system"
		nodeNamed(f, "node-2").Pod = "nodelvm-2"
		test.change(&f)
		got := expectTexts(t, name, f, test.want)
		if test.not != "" && strings.Contains(got, test.not) {
			t.Errorf("%s: %q in\n%s", name, test.not, got)
		}
	}
}
