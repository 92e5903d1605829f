//go:build e2e

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forge makes a PersistentVolume on a node that names a claim which is bound to another volume. Its notes say that its node
// was lost long ago.
func (n *node) forge(t *testing.T, name string, of *corev1.PersistentVolumeClaim, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	t.Helper()
	pv := expectVolumeKept(t, of).DeepCopy()
	pv.ObjectMeta = metav1.ObjectMeta{Name: name, Finalizers: []string{provisionerHolds}, Annotations: map[string]string{
		"nodelvm.io/lost-since": "2020-01-02T03:04:05Z", "pv.kubernetes.io/provisioned-by": driver,
	}}
	pv.Spec.StorageClassName, pv.Spec.CSI.Driver = optedIn, driver
	pv.Spec.CSI.VolumeHandle = "AAAAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGGGG/" + name
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{n.name}
	change(pv)
	pv, err := admin.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() { dropVolume(t, name) }) // what it is held by is for no later test
	patchVolume(t, name, "status", `{"status": {"phase": "Bound"}}`)
	return pv
}

// TestControllerIgnoresForgedClaimReferences: a PersistentVolume on a lost node that names a claim which is bound to another
// volume has neither that claim nor its pod deleted, told, or changed; whatever driver made the claim's volume.
func TestControllerIgnoresForgedClaimReferences(t *testing.T) {
	lost, stays := newNode(t, "lost"), newNode(t, "stays")
	real := lost.inUse(t, "real", optedIn, corev1.PersistentVolumeReclaimDelete)
	victims := []*corev1.PersistentVolumeClaim{
		stays.inUse(t, "ours", optedIn, corev1.PersistentVolumeReclaimDelete),
		stays.inUse(t, "theirs", optedIn, corev1.PersistentVolumeReclaimDelete),
		lost.inUse(t, "cloned", "thin", corev1.PersistentVolumeReclaimDelete),
	}
	replaceDriver(t, victims[1])
	pod := waitingPod(t, victims[0], "")
	forged := []string{}
	for i, victim := range victims {
		pv := lost.forge(t, fmt.Sprintf("forged-%s-%d", lost.name, i), victim, func(pv *corev1.PersistentVolume) {
			if i == 2 { // as the victim's own volume, but in a class that releases
				pv.Spec.CSI.VolumeHandle = expectVolumeKept(t, victim).Spec.CSI.VolumeHandle
			}
		})
		forged = append(forged, pv.Name)
	}
	playVolumeController(t, real)
	before := map[string]string{}
	for _, victim := range victims {
		before[victim.Name] = versionOf(t, victim)
	}
	lost.remove(t)
	startController(t, "a")
	for i, name := range forged {
		if why := eventOn(t, "default", name, "ClaimMismatch"); !strings.Contains(why, victims[i].Name) && !strings.Contains(why, "same volume handle") {
			t.Errorf("PersistentVolume %s is told %q", name, why)
		}
	}
	untilGone(t, "the claim of the lost node", claimOf(t, real))
	untilGone(t, "its volume", volumeOf(t, real))
	for _, victim := range victims {
		expectKept(t, victim)
		if now := versionOf(t, victim); now != before[victim.Name] {
			t.Errorf("claim %s was changed", victim.Name)
		}
	}
	for _, victim := range victims[:2] {
		if events := eventsOn(t, victim.Namespace, victim.Name); len(events) > 0 {
			t.Errorf("claim %s is told of a volume that is not its own: %+v", victim.Name, events)
		}
	}
	if now, err := admin.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{}); err != nil || now.DeletionTimestamp != nil {
		t.Errorf("the victim's pod is not kept: %v", err)
	}
}

func versionOf(t *testing.T, claim *corev1.PersistentVolumeClaim) string {
	t.Helper()
	now, err := admin.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
	must(t, err)
	return now.ResourceVersion
}
