//go:build e2e

package apiserver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/report"
)

// populated is a claim whose volume a volume populator creates for another claim, fills, and gives to it.
type populated struct {
	claim *corev1.PersistentVolumeClaim
	pv    string
}

// populate does what a volume populator (kubernetes-csi/lib-volume-populator) and Kubernetes' volume controller do, beside the real csi-provisioner.
func (n *node) populate(t *testing.T) populated {
	t.Helper()
	must(t, releaseClass())
	of := func(name string, change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		return n.selectedClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.StorageClassName = new(optedIn)
			change(c)
		})
	}
	claim := of("data", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: "nightly"}
	})
	prime := of("prime-"+string(claim.UID), func(*corev1.PersistentVolumeClaim) {})
	name := n.untilProvisioned(t, prime).Name
	bindTo(t, prime, name)
	patchVolume(t, name, "status", `{"status": {"phase": "Bound"}}`)
	eventSays(t, claim.Namespace, claim.Name, "Provisioning", "Normal", "external populator")
	if _, err := admin.CoreV1().PersistentVolumes().Get(t.Context(), "pvc-"+string(claim.UID), metav1.GetOptions{}); err == nil {
		t.Error("the claim that a populator fills has a volume of its own")
	}
	patchVolume(t, name, "", fmt.Sprintf(`{"spec": {"claimRef": {"namespace": %q, "name": %q, "uid": %q, "resourceVersion": null}}}`, claim.Namespace, claim.Name, claim.UID))
	claim = bindTo(t, claim, name)
	patchClaim(t, prime, "status", `{"status": {"phase": "Lost"}}`)
	patchClaim(t, prime, "", `{"metadata": {"finalizers": null}}`)
	must(t, admin.CoreV1().PersistentVolumeClaims(prime.Namespace).Delete(t.Context(), prime.Name, metav1.DeleteOptions{}))
	return populated{claim, name}
}

// TestPopulatedClaim: csi-provisioner creates no volume for a claim that a volume populator fills, and does for the populator's own claim. The volume, which has
// another claim than the one that it was created for, is the claim's for all that the driver and nodelvm-controller do.
func TestPopulatedClaim(t *testing.T) {
	here := newNode(t, "a")
	fake := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	here.host = fake.Start(t, lvm.Config{})
	logs := here.startSidecars(t)
	defer func() {
		if t.Failed() {
			t.Log(logs())
		}
	}()
	agent := here.agent(t, here.roundTrip, func(c *kube.Config) {
		c.AuditEvery = time.Second
		c.Health = func(ctx context.Context) (found []lvm.Condition, err error) {
			volumes, err := here.host.List(ctx)
			for _, v := range volumes {
				found = append(found, lvm.Condition{Type: lvm.ConditionThinPoolFull, Group: "vg", Text: "the pool is full", Volume: v})
			}
			return found, err
		}
	})
	stop := inBackground(t, agent.Run)
	p := here.populate(t)

	request(t, p.claim, "2Gi")
	until(t, p.claim, "expanded", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == corev1.PersistentVolumeClaimNodeResizePending
	})
	pv, id := boundVolume(t, p.claim)
	if pv.Name != p.pv || pv.Spec.Capacity.Storage().Cmp(resource.MustParse("2Gi")) != 0 {
		t.Errorf("the volume of the claim is %s, with %s", pv.Name, pv.Spec.Capacity.Storage())
	}
	if err := agent.MayDelete(t.Context(), id); lvm.KindOf(err) != lvm.KindConflict {
		t.Errorf("the volume may be deleted: %v", err)
	}
	untilOrphans(t, agent, map[string]report.Reason{})
	wait := 2 * time.Minute // for the check of conditions, which runs twice a minute
	for deadline := time.Now().Add(wait); ; time.Sleep(time.Second) {
		if events := eventsOn(t, p.claim.Namespace, p.claim.Name); strings.Contains(fmt.Sprint(events), "the pool is full") {
			break
		}
		if time.Now().After(deadline) {
			t.Error("the claim has no event about its volume")
			break
		}
	}
	plug := fake.Unplug("vg")
	eventOn(t, p.claim.Namespace, p.claim.Name, "VolumeGroupLost")
	plug()
	expectAllowed(t, here)

	stop() // a node that is gone reports nothing
	startController(t, "a")
	playVolumeController(t, p.claim)
	here.remove(t)
	eventOn(t, p.claim.Namespace, p.claim.Name, "VolumeLost")
	untilGone(t, "the populated claim of the lost node", claimOf(t, p.claim))
	untilGone(t, "its volume", volumeOf(t, p.claim))
}

// foreignVolume makes a claim with a volume of another driver.
func foreignVolume(t *testing.T, name string) {
	t.Helper()
	claim := newClaim(t, name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.StorageClassName = new("disks")
		c.Annotations["volume.kubernetes.io/storage-provisioner"] = "disks.example"
	})
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: "disks", AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: "vol-1"}},
	}}
	_, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	patchVolume(t, pv.Name, "status", `{"status": {"phase": "Bound"}}`)
	bindTo(t, claim, pv.Name)
}

// TestClaimsWithoutAVolume: what happens to claims for which csi-provisioner creates no volume, or would create an empty one in place of data.
func TestClaimsWithoutAVolume(t *testing.T) {
	here, plugin := newNode(t, "a"), compilePlugin(t)
	agent := here.start(t)
	here.cluster = agent
	here.startSidecars(t)
	selector := here.selectedClaim(t, "selector", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "old"}}
	})
	elsewhere := here.selectedClaim(t, "elsewhere", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new(snapshotGroup), Kind: "VolumeSnapshot", Name: "nightly", Namespace: new("other")}
	})
	foreign := here.selectedClaim(t, "foreign", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: "nightly"}
	})
	backup := here.selectedClaim(t, "backup", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: new("example.com"), Kind: "Backup", Name: "nightly"}
	})
	foreignVolume(t, "disk")
	clone := here.selectedClaim(t, "clone", func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "disk"}
	})
	for _, claim := range []*corev1.PersistentVolumeClaim{elsewhere, foreign} {
		if claim.Spec.DataSourceRef != nil || claim.Spec.DataSource != nil {
			t.Fatalf("the API server keeps the source of claim %s", claim.Name)
		}
	}
	for _, test := range []struct {
		claim             *corev1.PersistentVolumeClaim
		reason, says, why string
	}{
		{selector, "ProvisioningFailed", "claim Selector is not supported", "the claim has a selector (disk=old): csi-provisioner creates no volume for it"},
		{elsewhere, "ProvisioningFailed", "no volume is created for claim " + elsewhere.Namespace + "/elsewhere: the claim was created with a data source that the API server dropped", "delete the claim, and create it in the namespace of its source"},
		{foreign, "ProvisioningFailed", "or with dataSourceRef instead of dataSource", "the claim was created with a data source that the API server dropped"},
		{clone, "SourceOfOtherDriver", "PersistentVolumeClaim " + clone.Namespace + "/disk, has a volume of the driver disks.example",
			"the claim's source, PersistentVolumeClaim disk, has a volume of the driver disks.example, and nodelvm copies only its own volumes"},
		{backup, "Provisioning", "external populator", "a volume populator has to create the volume, from Backup.example.com nightly"},
	} {
		eventSays(t, test.claim.Namespace, test.claim.Name, test.reason, "", test.says)
		if out, _ := plugin.run(t, "why", test.claim.Name, "-n", test.claim.Namespace); !strings.Contains(out, test.why) {
			t.Errorf("why %s does not say %q:\n%s", test.claim.Name, test.why, out)
		}
	}
	here.untilProvisioned(t, here.selectedClaim(t, "plain", func(*corev1.PersistentVolumeClaim) {}))
	volumes, err := here.host.List(t.Context())
	if err != nil || len(volumes) != 1 {
		t.Errorf("%d volumes, want the plain claim's alone: %v", len(volumes), err)
	}
}

// TestSnapshotsWithoutDistributedSnapshotting: the controllers of many distributions run without --enable-distributed-snapshotting, and label no content with a
// node. The driver's agent does, and the whole life of a snapshot works.
func TestSnapshotsWithoutDistributedSnapshotting(t *testing.T) {
	startSnapshotController(t)
	here, other := newNode(t, "a"), newNode(t, "b")
	source := here.bound(t, "data", corev1.PersistentVolumeFilesystem)
	patchVolume(t, source.Spec.VolumeName, "status", `{"status": {"phase": "Bound"}}`)
	here.startSidecars(t)
	here.start(t)
	other.start(t)
	makeSnapshotClass(t, here.name, "{}")
	post(t, snapshotsIn(t), "VolumeSnapshot", "nightly", "{}", `"spec": {"volumeSnapshotClassName": %q, "source": {"persistentVolumeClaimName": "data"}}`, here.name)
	var snapshot struct {
		Metadata struct{ Finalizers []string }
		Status   struct {
			ReadyToUse bool
			Content    string `json:"boundVolumeSnapshotContentName"`
			Error      struct{ Message string }
		}
	}
	soon(t, "the snapshot is ready", func() bool {
		readRaw(t, &snapshot, snapshotsIn(t), "nightly")
		return snapshot.Status.ReadyToUse && len(snapshot.Metadata.Finalizers) > 0
	})
	if got := managerOf(t, snapshot.Status.Content); got != here.name {
		t.Errorf("its content has the label %q", got)
	}
	claim := copyOf(t, "restored", snapshotGroup, "VolumeSnapshot", "nightly", other.name)
	until(t, claim, "selected where the snapshot is", selectedIs(here.name))
	patchClaim(t, claim, "", fmt.Sprintf(`{"metadata": {"annotations": {"volume.kubernetes.io/storage-provisioner": %q}}}`, driver))
	bindTo(t, claim, here.untilProvisioned(t, claim).Name)
	must(t, admin.RESTClient().Delete().AbsPath(snapshotsIn(t), "nightly").Do(t.Context()).Error())
	untilGone(t, "the content", there(t, contents, snapshot.Status.Content))
	soon(t, "the snapshot is deleted", func() bool { return here.groupSnapshots(t) == 0 })
	expectAllowed(t, here)
	expectNoWrites(t, other)
}
