//go:build e2e

package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"sync"
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

// attributesSince is the minor version of Kubernetes that serves VolumeAttributesClasses of v1.
const attributesSince = 34

// attributesClass makes a class; it skips the test on an older API server.
func attributesClass(t *testing.T, name string, parameters map[string]string) {
	t.Helper()
	if minor := minorVersion(t); minor < attributesSince {
		t.Skipf("Kubernetes 1.%d serves no VolumeAttributesClasses of v1, which the driver's I/O limits need", minor)
	}
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
