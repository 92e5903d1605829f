package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
)

func boundClaim(name, driver string) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
		Annotations: map[string]string{api.AnnotationStorageProvisioner: driver, api.AnnotationSelectedNode: "node-1"}}}
	c.Spec.StorageClassName, c.Spec.VolumeName, c.Status.Phase = ptr.To("local"), "pvc-"+name, corev1.ClaimBound
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
	return c
}

func eventAbout(claim, kind, reason string, at time.Time) corev1.Event {
	return corev1.Event{InvolvedObject: corev1.ObjectReference{UID: types.UID("uid-" + claim)}, Type: kind, Reason: reason, Message: "text", LastTimestamp: metav1.NewTime(at)}
}

// TestClaimsOfOneNamespace: the rows are the driver's claims, with their pods, and with the last event if it is a warning. The node of a
// bound claim is that of its pod, which another than the selected one may be, or unknown.
func TestClaimsOfOneNamespace(t *testing.T) {
	waiting := boundClaim("waiting", api.DriverName)
	waiting.Spec.VolumeName, waiting.Status = "", corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	claims := []corev1.PersistentVolumeClaim{waiting, boundClaim("data-db-0", api.DriverName), boundClaim("repaired", api.DriverName), boundClaim("theirs", "other.io")}
	events := []corev1.Event{
		eventAbout("data-db-0", corev1.EventTypeNormal, "VolumeDegradedResolved", now.Add(-time.Hour)), eventAbout("data-db-0", corev1.EventTypeWarning, "VolumeDegraded", now),
		eventAbout("repaired", corev1.EventTypeWarning, "VolumeDegraded", now.Add(-time.Hour)), eventAbout("repaired", corev1.EventTypeNormal, "VolumeDegradedResolved", now),
	}
	pods := podsOfShop()
	pods[0].Spec.NodeName, pods[0].Status.Phase = "node-2", corev1.PodRunning
	rows := claimRowsOf(claims, usersOf(pods), events)
	if len(rows) != 3 {
		t.Fatalf("rows %+v", rows)
	}
	if r := rows[0]; r.Claim != "shop/data-db-0" || !slices.Equal(r.Pods, []string{"db-0"}) || r.Node != "node-2" || r.Class != "local" || r.Size != 2*GiB || !slices.Equal(r.Status, []string{"VolumeDegraded"}) {
		t.Errorf("the degraded one is %+v", r)
	}
	if r := rows[1]; r.Claim != "shop/repaired" || r.Node != "" || !slices.Equal(r.Status, []string{healthy}) {
		t.Errorf("the repaired one is %+v", r)
	}
	if r := rows[2]; r.Size != GiB || r.Node != "node-1" || !slices.Equal(r.Status, []string{"pending"}) {
		t.Errorf("the waiting one is %+v", r)
	}
}

func TestSnapshotsOfOneNamespace(t *testing.T) {
	var list []namespaceSnapshot
	if err := json.Unmarshal([]byte(`[
{"metadata":{"namespace":"shop","name":"good"},"spec":{"source":{"persistentVolumeClaimName":"data"}},"status":{"readyToUse":true,"restoreSize":"4Gi","creationTime":"2026-03-01T11:00:00Z"}},
{"metadata":{"namespace":"shop","name":"new"},"spec":{"source":{"persistentVolumeClaimName":"data"}}},
{"metadata":{"namespace":"shop","name":"failed"},"spec":{"source":{"volumeSnapshotContentName":"c"}},"status":{"readyToUse":false,"error":{"message":"no\u001b room"}}}]`), &list); err != nil {
		t.Fatal(err)
	}
	rows := namespaceSnapshotRows(list)
	if r := rows[0]; r.Snapshot != "shop/good" || r.Claim != "shop/data" || r.Size != 4*GiB || r.Status != healthy || !r.Created.Equal(now.Add(-time.Hour)) {
		t.Errorf("the good one is %+v", r)
	}
	if rows[1].Status != "not ready" || rows[2].Status != "error" || rows[2].Text != `no\x1b room` || rows[2].Claim != "" {
		t.Errorf("the others are %+v", rows[1:])
	}
}
