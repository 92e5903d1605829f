package controller

import (
	"context"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// Cluster is what this service needs of Kubernetes.
type Cluster interface {
	// Asked records the start of a request for a claim's volume, and answered its end.
	Asked(namespace, claim string) (answered func())
	// PodClaims returns the peers of a claim; without any, the zero value.
	PodClaims(ctx context.Context, namespace, claim string) (api.PodClaims, error)
	// Waiting reports whether a claim exists and has no volume. The service calls it often, so it answers from memory.
	Waiting(namespace, claim, uid string) bool
	// WaitingHere reports, from memory too, whether a claim waits for its volume and this node is its selected node.
	WaitingHere(namespace, claim, uid string) bool
	// MayRestore returns nil if the driver may restore this snapshot of the node for the claim. lvm.KindBusy: undecided, retry.
	// lvm.KindInvalid, lvm.KindNotFound: it may not.
	MayRestore(ctx context.Context, namespace, claim, uid string, of lvm.ID) error
	// MayDelete returns nil if the driver may delete this volume or snapshot of the node. lvm.KindBusy: undecided, retry.
	// lvm.KindConflict: a PersistentVolume or VolumeSnapshotContent needs it, other than the one that the caller deletes.
	MayDelete(ctx context.Context, of lvm.ID) error
	// Warn writes a warning event on the claim. It does not repeat one with the same reason while that event lasts.
	Warn(ctx context.Context, namespace, claim, uid, reason, message string)
}

// claimKey returns the names and the UID of the claim of a volume, as methods of Cluster take them. The names are empty if the request does
// not pass them.
func claimKey(claim, volume string) (namespace, name, uid string) {
	namespace, name, _ = strings.Cut(claim, "/")
	return namespace, name, strings.TrimPrefix(volume, api.PrefixVolume)
}

// needOf returns the start of a sentence about what the pods need.
func needOf(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " needs"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, need"
}

// unschedulable returns the start of a sentence about why the pods cannot run.
func unschedulable(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " cannot be scheduled"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, cannot all be scheduled"
}

// namesOf names the pod's claims, including the requested one.
func namesOf(spec lvm.Spec, claims api.PodClaims) string {
	_, claim, _ := claimKey(spec.Claim, spec.Name)
	names := []string{claim}
	for _, c := range claims.Claims {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}
