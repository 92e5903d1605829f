//go:build e2e

package apiserver

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
)

// allowAttributes makes the policy that of a chart with ioLimits.enabled, until the test ends.
func allowAttributes(t *testing.T) {
	t.Helper()
	setPolicyVariable(t, "modifies", "true")
}

// untilAttributesAllowed waits until the API server goes by allowAttributes.
func (n *node) untilAttributesAllowed(t *testing.T, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	client := n.client(t) // beside what the agent writes
	soon(t, "the API server goes by the policy", func() bool {
		_, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), claim.Spec.VolumeName, types.MergePatchType,
			[]byte(`{"spec": {"volumeAttributesClassName": "probe"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil
	})
}

// limiting gives an agent what changes the limits of its node's volumes.
func (n *node) limiting(c *kube.Config) { c.Limits = n.host }

func attributesClass(t *testing.T, name string, parameters map[string]string) {
	t.Helper()
	create(t, admin.StorageV1().VolumeAttributesClasses(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: driver, Parameters: parameters})
}

// namesClass makes a claim name a class.
func namesClass(t *testing.T, claim *corev1.PersistentVolumeClaim, class string) {
	t.Helper()
	patchClaim(t, claim, "", fmt.Sprintf(`{"spec": {"volumeAttributesClassName": %q}}`, class))
}

func hasClass(class string) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.ModifyVolumeStatus == nil && c.Status.CurrentVolumeAttributesClassName != nil && *c.Status.CurrentVolumeAttributesClassName == class
	}
}

func isModifying(state corev1.PersistentVolumeClaimModifyVolumeStatus) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.ModifyVolumeStatus != nil && c.Status.ModifyVolumeStatus.Status == state
	}
}

// states returns the states of a claim's volume, in order and each once, from now to the end of the test.
func states(t *testing.T, claim *corev1.PersistentVolumeClaim) func() []string {
	t.Helper()
	watch, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + claim.Name})
	must(t, err)
	t.Cleanup(watch.Stop)
	var mu sync.Mutex
	var seen []string
	go func() {
		for event := range watch.ResultChan() {
			c, is := event.Object.(*corev1.PersistentVolumeClaim)
			if !is {
				continue
			}
			state := "has "
			if c.Status.CurrentVolumeAttributesClassName != nil {
				state += *c.Status.CurrentVolumeAttributesClassName
			}
			if m := c.Status.ModifyVolumeStatus; m != nil {
				state += ", " + strings.TrimSpace(string(m.Status)+" "+m.TargetVolumeAttributesClassName)
			}
			for _, condition := range c.Status.Conditions {
				state += ", " + string(condition.Type)
			}
			mu.Lock()
			seen = append(seen, state)
			mu.Unlock()
		}
	}()
	return func() []string { mu.Lock(); defer mu.Unlock(); return slices.Compact(slices.Clone(seen)) }
}

// expectLimits holds the LV and the PersistentVolume to a class.
func expectLimits(t *testing.T, n *node, claim *corev1.PersistentVolumeClaim, class string, limits lvm.Limits) {
	t.Helper()
	pv, id := boundVolume(t, claim)
	volume, err := n.host.Lookup(t.Context(), id)
	if named := pv.Spec.VolumeAttributesClassName; err != nil || volume.Limits != limits || named == nil || *named != class {
		t.Errorf("the LV has the limits %s (%v), the PersistentVolume the class %v; want %s and %s", volume.Limits, err, named, limits, class)
	}
}

// TestVolumeAttributes: the volume's own node changes its limits, and no other; the states are upstream's.
func TestVolumeAttributes(t *testing.T) {
	attributesClass(t, "gold", map[string]string{"readIOPS": "1k", "writeBandwidthPerGiB": "10Mi"})
	attributesClass(t, "free", map[string]string{"readIOPS": "max"})
	attributesClass(t, "unknown", map[string]string{"iops": "5"})
	allowAttributes(t)
	here, other := newNode(t, "a"), newNode(t, "b")
	here.start(t, here.limiting)
	other.start(t, other.limiting)
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	here.untilAttributesAllowed(t, claim)
	seen := states(t, claim)

	namesClass(t, claim, "gold")
	until(t, claim, "the first class", hasClass("gold"))
	gold := lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 1000}, PerGiB: lvm.Rates{WriteBandwidth: 10 * lvm.MiB}}
	expectLimits(t, here, claim, "gold", gold)
	eventOn(t, claim.Namespace, claim.Name, "VolumeModifySuccessful")

	namesClass(t, claim, "unknown")
	until(t, claim, "infeasible", isModifying(corev1.PersistentVolumeClaimModifyVolumeInfeasible))
	if why := eventOn(t, claim.Namespace, claim.Name, "VolumeModifyFailed"); !strings.Contains(why, `unknown parameter "iops"`) {
		t.Errorf("the event says %q", why)
	}
	namesClass(t, claim, "gold") // the API server allows no claim to return to no class
	until(t, claim, "the change cancelled", hasClass("gold"))
	expectLimits(t, here, claim, "gold", gold)

	namesClass(t, claim, "later")
	until(t, claim, "pending", isModifying(corev1.PersistentVolumeClaimModifyVolumePending))
	attributesClass(t, "later", map[string]string{"writeIOPS": "100"})
	until(t, claim, "the class that came later", hasClass("later"))
	namesClass(t, claim, "free")
	until(t, claim, "no limits", hasClass("free"))
	expectLimits(t, here, claim, "free", lvm.Limits{})

	want := []string{
		"has ", "has , InProgress gold, ModifyingVolume", "has gold",
		"has gold, InProgress unknown, ModifyingVolume", "has gold, Infeasible unknown, ModifyingVolume, ModifyVolumeError",
		"has gold, InProgress gold, ModifyingVolume, ModifyVolumeError", "has gold",
		"has gold, Pending", "has gold, InProgress later, ModifyingVolume", "has later",
		"has later, InProgress free, ModifyingVolume", "has free",
	}
	soon(t, "the watch brings the last state", func() bool { return len(seen()) >= len(want) })
	if got := seen(); !slices.Equal(got, want) {
		t.Errorf("the states are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	writes := here.written()
	volume := slices.IndexFunc(writes, func(w string) bool { return strings.Contains(w, "/persistentvolumes/") })
	if volume != 1 || !strings.Contains(writes[2], "/status") {
		t.Errorf("the PersistentVolume does not come before the claim's status:\n%s", strings.Join(writes, "\n"))
	}
	expectAllowed(t, here)
	expectNoWrites(t, other)
}

// TestVolumeAttributesAreOptional: an agent without limits ignores the class. One with limits does not touch claims without one, sends no other
// request for them, and asks for no class.
func TestVolumeAttributesAreOptional(t *testing.T) {
	without, with := newNode(t, "a"), newNode(t, "b")
	var classes atomic.Int32
	counted := func(next http.RoundTripper) http.RoundTripper {
		next = with.roundTrip(next)
		return trip(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/volumeattributesclasses") {
				classes.Add(1)
			}
			return next.RoundTrip(r)
		})
	}
	without.start(t)
	inBackground(t, with.agent(t, counted, with.limiting).Run)
	named, plain := without.bound(t, "named", corev1.PersistentVolumeFilesystem), with.bound(t, "plain", corev1.PersistentVolumeFilesystem)
	namesClass(t, named, "missing")
	request(t, named, "2Gi") // when the agent has done that, it has seen the class
	request(t, plain, "2Gi")
	for _, claim := range []*corev1.PersistentVolumeClaim{named, plain} {
		now := until(t, claim, "the kubelet's turn", func(c *corev1.PersistentVolumeClaim) bool {
			return resizeState(c) == corev1.PersistentVolumeClaimNodeResizePending
		})
		if now.Status.ModifyVolumeStatus != nil {
			t.Errorf("%s: %+v", claim.Name, now.Status)
		}
	}
	if n := classes.Load(); n != 0 {
		t.Errorf("the agent with limits sent %d requests for classes", n)
	}
	soon(t, "both agents have sent the same kinds of requests", func() bool { return slices.Equal(without.kindsWritten(), with.kindsWritten()) })
}

var objectsOfTest = regexp.MustCompile(`/(namespaces|persistentvolumeclaims|persistentvolumes|nodes)/[^/ ]+`)

// kindsWritten returns what the agent has written, without the names of objects. A conflict (409) is repeated.
func (n *node) kindsWritten() (kinds []string) {
	for _, w := range n.written() {
		if !strings.HasSuffix(w, " 409") {
			kinds = append(kinds, objectsOfTest.ReplaceAllString(w, "/$1"))
		}
	}
	slices.Sort(kinds)
	return kinds
}

// TestVolumeAttributesOfOtherNodes: a node's token may record its own volumes' attributes alone.
func TestVolumeAttributesOfOtherNodes(t *testing.T) {
	one, two := newNode(t, "a"), newNode(t, "b")
	ones, twos := one.bound(t, "ones", corev1.PersistentVolumeFilesystem), two.bound(t, "twos", corev1.PersistentVolumeFilesystem)
	namesClass(t, ones, "gold")
	namesClass(t, twos, "gold")
	change := func(n *node, claim *corev1.PersistentVolumeClaim, body, class string, sub ...string) error {
		_, err := n.client(t).CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType, fmt.Appendf(nil, body, class), metav1.PatchOptions{}, sub...)
		return err
	}
	status := func(n *node, claim *corev1.PersistentVolumeClaim, class string) error {
		return change(n, claim, `{"status": {"modifyVolumeStatus": {"status": "InProgress", "targetVolumeAttributesClassName": %q}}}`, class, "status")
	}
	volume := func(n *node, claim *corev1.PersistentVolumeClaim, class string, dryRun ...string) error {
		_, err := n.client(t).CoreV1().PersistentVolumes().Patch(t.Context(), claim.Spec.VolumeName, types.MergePatchType,
			fmt.Appendf(nil, `{"spec": {"volumeAttributesClassName": %q}}`, class), metav1.PatchOptions{DryRun: dryRun})
		return err
	}
	const volumeRefused, claimRefused = "nodelvm-node-restriction", "may give back unbound claims"
	soon(t, "without ioLimits.enabled, a node may not record a change of its volume", func() bool { // an earlier test's allowAttributes has just ended
		return apierrors.IsForbidden(volume(one, ones, "gold", metav1.DryRunAll))
	})
	allowAttributes(t)
	one.untilAttributesAllowed(t, ones)
	expectTried(t, // before the volumes' own nodes do
		tried{"a begins the change that another's claim asks for", claimRefused, status(one, twos, "gold")},
		tried{"b begins the change that another's claim asks for", claimRefused, status(two, ones, "gold")},
		tried{"a records the change of another's volume", volumeRefused, volume(one, twos, "gold")},
		tried{"b records the change of another's volume", volumeRefused, volume(two, ones, "gold")},
	)
	for _, n := range []struct {
		*node
		own, others *corev1.PersistentVolumeClaim
	}{{one, ones, twos}, {two, twos, ones}} {
		expectTried(t,
			tried{n.name + " begins a change of its volume", "", status(n.node, n.own, "gold")},
			tried{n.name + " records a change of its volume", "", volume(n.node, n.own, "gold")},
			tried{n.name + " begins a change that its claim does not ask for", claimRefused, status(n.node, n.own, "silver")},
			tried{n.name + " begins a change of another's volume", claimRefused, status(n.node, n.others, "silver")},
			tried{n.name + " records a change of another's volume", volumeRefused, volume(n.node, n.others, "silver")},
			tried{n.name + " asks for a change of its volume", claimRefused, change(n.node, n.own, `{"spec": {"volumeAttributesClassName": %q}}`, "silver")},
			tried{n.name + " asks for a change of another's volume", claimRefused, change(n.node, n.others, `{"spec": {"volumeAttributesClassName": %q}}`, "silver")},
		)
		if _, err := n.client(t).StorageV1().VolumeAttributesClasses().Create(t.Context(), &storagev1.VolumeAttributesClass{
			ObjectMeta: metav1.ObjectMeta{Name: "mine"}, DriverName: driver, Parameters: map[string]string{"readIOPS": "max"}}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s creates a class: %v", n.name, err)
		}
	}
}

// TestQuotaOfAttributes: a quota of a class refuses the claim that names it, so nothing reaches the volume.
func TestQuotaOfAttributes(t *testing.T) {
	attributesClass(t, "scarce", map[string]string{"readIOPS": "1k"})
	here := newNode(t, "a")
	here.start(t, here.limiting)
	claim := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	none := corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("0")}
	quotas := admin.CoreV1().ResourceQuotas(claim.Namespace)
	quota := create(t, quotas, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{
		Hard: none, ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
			ScopeName: corev1.ResourceQuotaScopeVolumeAttributesClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"scarce"},
		}}}}})
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	_, err := quotas.UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	must(t, err)
	name := func() error {
		_, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(t.Context(), claim.Name, types.MergePatchType,
			[]byte(`{"spec": {"volumeAttributesClassName": "scarce"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	soon(t, "the API server goes by the quota", func() bool { return apierrors.IsForbidden(name()) })
	if err := name(); !strings.Contains(fmt.Sprint(err), "exceeded quota: none") {
		t.Error(err)
	}
	expectNoWrites(t, here)
}
