package kube

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// TestClaimWithoutMatchingPVIsIgnored: a tenant may write the name of any volume into a claim. That claim gets no event about the
// volume, and the tenant's pod is not placed on its node.
func TestClaimWithoutMatchingPVIsIgnored(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	thief, owner := kubetest.Claim("thief", "late", "pvc-data"), kubetest.Claim("data", "late", "pvc-data")
	thief.Status.Phase = corev1.ClaimPending
	for _, c := range []*corev1.PersistentVolumeClaim{thief, owner} {
		must(t, store.Replace([]any{stripClaim(thief), stripClaim(c)}, ""))
	}
	if key, _, ok := store.boundTo("pvc-data"); key != "ns/data" || !ok || len(store.own) != 1 {
		t.Errorf("the volume is bound to %q, of %v", key, store.own)
	}
	pv := kubetest.VolumeOn("node-1", "data")
	if pending.MayBind(pv, thief) || !pending.MayBind(pv, owner) {
		t.Error("a claim that another claim's volume does not name may be bound to it")
	}
	pv.Spec.ClaimRef.UID = ""
	if !pending.MayBind(pv, owner) {
		t.Error("a volume reserved for the claim cannot be bound to it")
	}
}

// TestClassOfVolume: the claim that is bound to a volume determines its class.
func TestClassOfVolume(t *testing.T) {
	a := &Agent{claims: newClaimStore("node-1", func(string) {})}
	elsewhere := kubetest.Claim("elsewhere", "late", "pvc-else")
	elsewhere.Annotations = map[string]string{api.AnnotationSelectedNode: "node-2"}
	for _, c := range []*corev1.PersistentVolumeClaim{kubetest.Claim("data", "late", "pvc-data"), elsewhere} {
		must(t, a.claims.Add(stripClaim(c)))
	}
	for volume, want := range map[string]string{"pvc-data": "late", "pvc-other": "", "pvc-else": ""} {
		if got := a.ClassOf(volume); got != want {
			t.Errorf("%s: %q, want %q", volume, got, want)
		}
	}
}

// TestTrimInterval: a claim's interval overrides that of its class, and applies only to the volume that the claim is bound to.
func TestTrimInterval(t *testing.T) {
	a := &Agent{claims: newClaimStore("node-1", func(string) {}), classes: newClassStore(func(string) {})}
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late", Annotations: map[string]string{api.AnnotationTrimInterval: "24h", "other": "x"}}, Provisioner: api.DriverName}
	own, never := kubetest.Claim("own", "late", "pvc-own"), kubetest.Claim("never", "late", "pvc-never")
	own.Annotations, never.Annotations = map[string]string{api.AnnotationTrimInterval: "2h"}, map[string]string{api.AnnotationTrimInterval: "never"}
	for _, c := range []*corev1.PersistentVolumeClaim{own, never, kubetest.Claim("plain", "late", "pvc-plain"), kubetest.Claim("none", "early", "pvc-none")} {
		must(t, a.claims.Add(stripClaim(c)))
	}
	must(t, a.classes.Add(class))
	for volume, want := range map[string]string{"pvc-own": "2h", "pvc-never": "never", "pvc-plain": "24h", "pvc-none": "", "pvc-gone": ""} {
		if got := a.TrimInterval(volume); got != want {
			t.Errorf("%s: %q, want %q", volume, got, want)
		}
	}
}

// TestOldClassAnnotation: the store keeps the class that Kubernetes sees.
func TestOldClassAnnotation(t *testing.T) {
	store := newClaimStore("node-1", func(string) {})
	old := kubetest.Claim("old", "late", "")
	old.Annotations = map[string]string{api.AnnotationStorageClassBeta: "ebs"}
	must(t, store.Add(old))
	if kept, ok := store.waiting("ns/old"); !ok || kubeclient.ClassOf(kept) != "ebs" {
		t.Errorf("kept %v", kept)
	}
}

// TestRequestWithoutEnd: a claim that requests a size with a huge exponent costs a node nothing, and no volume is extended to less than it says.
func TestRequestWithoutEnd(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Spec.VolumeName, claim.Status.Phase = "pvc-1", corev1.ClaimBound
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1e999999999")}
	claim.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim.Status.AllocatedResources = claim.Status.Capacity
	target, ok := resizeTarget(claim)
	if !isOpen(claim) || !ok || isMarked(claim, target) || pending.BytesOf(&target) < lvm.TiB {
		t.Errorf("it is extended to %d bytes: %v", pending.BytesOf(&target), ok)
	}
}

// TestListOfManyClaims: the time that a list of all claims takes grows with their number alone: a tenant may have thousands of clones that wait.
func TestListOfManyClaims(t *testing.T) {
	const each = 2000
	var list []any
	for i := range each {
		clone := kubetest.Claim(fmt.Sprintf("clone-%d", i), "local", "")
		clone.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
		list = append(list, clone)
	}
	for i := range each {
		list = append(list, kubetest.Claim(fmt.Sprintf("bound-%d", i), "nfs", fmt.Sprintf("pv-%d", i)))
	}
	s := newClaimStore("node-1", func(string) {})
	if allocations := testing.AllocsPerRun(1, func() { must(t, s.Replace(list, "")) }); allocations > 100*2*each {
		t.Errorf("%.0f allocations for %d claims", allocations, len(list))
	}
}

// TestManyClaimsOfManySources: a snapshot or a claim wakes those that are made from it, and the others cost nothing: a tenant may have thousands.
func TestManyClaimsOfManySources(t *testing.T) {
	const each = 1000
	a := NewAgent(Config{Client: &kubeclient.Client{}, Node: "node-1"})
	var contents, bound []any
	for i := range each {
		for kind, group := range map[string]*string{"VolumeSnapshot": ptr.To("snapshot.storage.k8s.io"), "PersistentVolumeClaim": nil} {
			waits := kubetest.Claim(fmt.Sprintf("from-%s-%d", strings.ToLower(kind), i), "local", "")
			waits.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: group, Kind: kind, Name: fmt.Sprintf("source-%d", i)}
			must(t, a.claims.Add(waits))
		}
		content := kubetest.ContentOf(fmt.Sprintf("content-%d", i), "uid", "handle")
		content.Spec.VolumeSnapshotRef.Name = fmt.Sprintf("source-%d", i)
		contents, bound = append(contents, content), append(bound, kubetest.Claim(fmt.Sprintf("source-%d", i), "local", fmt.Sprintf("pv-%d", i)))
	}
	woken := map[string]int{}
	a.claims.changed = func(key string) { woken[key]++ }
	if allocations := testing.AllocsPerRun(1, func() { must(t, a.contents.Replace(contents, "")) }); allocations > 100*each {
		t.Errorf("%.0f allocations for %d contents", allocations, each)
	}
	if len(woken) != each {
		t.Errorf("%d of %d restores are woken", len(woken), each)
	}
	clear(woken)
	if allocations := testing.AllocsPerRun(1, func() {
		for _, claim := range bound {
			must(t, a.claims.Add(claim))
		}
	}); allocations > 100*each {
		t.Errorf("%.0f allocations for %d bound claims", allocations, each)
	}
	if len(woken) != each {
		t.Errorf("%d of %d clones are woken", len(woken), each)
	}
}
