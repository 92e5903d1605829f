package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// A user who may read only one namespace sees its claims, pods, events and snapshots. PersistentVolumes and the nodes' status pages
// name other tenants' objects, so the tables have "-" for their values.

// inOneNamespace adds to a "forbidden" error what such a user can do.
func inOneNamespace(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w; with --namespace NAMESPACE the command needs rights in that namespace only", err)
	}
	return err
}

// claimRows returns the rows of a namespace's claims. It reads only objects of that namespace.
func (c *cluster) claimRows(ctx context.Context, namespace string) ([]volumeRow, error) {
	claims, err := list[corev1.PersistentVolumeClaim](ctx, c.in(namespace, "persistentvolumeclaims"))
	if err != nil {
		return nil, err
	}
	pods, err := c.pods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	events, err := list[corev1.Event](ctx, c.in(namespace, "events").Param("fieldSelector", "involvedObject.kind=PersistentVolumeClaim"))
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, err
	}
	return claimRowsOf(claims, usersOf(pods), events), nil
}

// claimRowsOf builds the rows of the driver's claims from a namespace's objects, ordered by name.
func claimRowsOf(claims []corev1.PersistentVolumeClaim, users map[string][]user, events []corev1.Event) []volumeRow {
	rows := []volumeRow{}
	for _, claim := range claims {
		if api.ProvisionerOf(claim.Annotations) != api.DriverName {
			continue
		}
		key := claim.Namespace + "/" + claim.Name
		size := claim.Status.Capacity[corev1.ResourceStorage]
		if size.IsZero() {
			size = claim.Spec.Resources.Requests[corev1.ResourceStorage]
		}
		row := volumeRow{Claim: key, Node: nodeWithoutVolume(&claim, users[key]), Size: lvm.Bytes(size.Value()), PV: claim.Spec.VolumeName,
			Class: api.ClassOf(claim.Annotations, claim.Spec.StorageClassName), Created: claim.CreationTimestamp.Time}
		for _, u := range users[key] {
			row.Pods = append(row.Pods, u.name)
		}
		if claim.Status.Phase != corev1.ClaimBound {
			row.addStatus(strings.ToLower(string(claim.Status.Phase)), "the claim has no volume")
		}
		if e := lastWarning(events, claim.UID); e != nil {
			row.addStatus(e.Reason, e.Message)
		}
		if len(row.Status) == 0 {
			row.Status = []string{healthy}
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b volumeRow) int { return strings.Compare(a.Claim, b.Claim) })
	return rows
}

// lastWarning returns the last event about a claim if it is a warning: the driver also writes an event for a resolved condition.
func lastWarning(events []corev1.Event, claim types.UID) (last *corev1.Event) {
	for i, e := range events {
		if e.InvolvedObject.UID == claim && (last == nil || pending.EventTime(e).After(pending.EventTime(*last))) {
			last = &events[i]
		}
	}
	if last == nil || last.Type != corev1.EventTypeWarning {
		return nil
	}
	return last
}

// namespaceSnapshot has the fields of a VolumeSnapshot that the plugin reads.
type namespaceSnapshot struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Source struct {
			Claim string `json:"persistentVolumeClaimName"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Ready       *bool      `json:"readyToUse"`
		Created     *time.Time `json:"creationTime"`
		RestoreSize string     `json:"restoreSize"`
		Error       *struct {
			Message string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// namespaceSnapshots lists the VolumeSnapshots of a namespace, or of all. It includes those of other drivers: only their classes,
// which are cluster-scoped, name the driver.
func (c *cluster) namespaceSnapshots(ctx context.Context, namespace string) ([]namespaceSnapshot, error) {
	path := "/apis/" + api.SnapshotGroup + "/v1"
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	snapshots, err := list[namespaceSnapshot](ctx, c.all(path+"/volumesnapshots"))
	return snapshots, ignoreNotFound(err)
}
