package controller

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// Cluster is what this service needs of the cluster.
type Cluster interface {
	// Asked is called at the start of each request for a claim's volume, and answered at its end.
	Asked(namespace, claim string) (answered func())
	// PodClaims finds what a claim is of use together with; none: the zero value.
	PodClaims(ctx context.Context, namespace, claim string) (api.PodClaims, error)
	// Waiting tells whether a claim is still there and still without a volume. It is asked often, and answers from memory.
	Waiting(namespace, claim, uid string) bool
	// WaitingHere tells whether it waits for a volume on this very node. From memory too.
	WaitingHere(namespace, claim, uid string) bool
	// MayRestore tells whether the claim's volume may be made as a copy of this snapshot of the node: nil, lvm.KindBusy for
	// "ask again", or lvm.KindInvalid or lvm.KindNotFound.
	MayRestore(ctx context.Context, namespace, claim, uid string, of lvm.ID) error
	// Warn reports a warning event on the claim. It does not repeat a message with the same reason while that condition lasts.
	Warn(ctx context.Context, namespace, claim, uid, reason, message string)
}

// needOf begins a sentence on what the pods need.
func needOf(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " needs"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, need"
}

// unschedulable begins a sentence on why they cannot run.
func unschedulable(c api.PodClaims) string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " cannot be scheduled"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, cannot all be scheduled"
}

// requestOf is what csi-provisioner will ask for. A copy is asked for without its source: it takes as much room as an empty
// volume.
func requestOf(c api.PodClaim, namespace string) *csi.CreateVolumeRequest {
	req := &csi.CreateVolumeRequest{
		Name:          api.PrefixVolume + c.UID,
		CapacityRange: &csi.CapacityRange{RequiredBytes: c.Size},
		Parameters:    map[string]string{api.ParameterClaimNamespace: namespace, api.ParameterClaimName: c.Name},
	}
	maps.Copy(req.Parameters, c.Parameters)
	for _, mode := range c.AccessModes {
		capability := &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: c.Parameters[api.ParameterFSType]}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessModes[mode]},
		}
		if c.Block {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		}
		req.VolumeCapabilities = append(req.VolumeCapabilities, capability)
	}
	return req
}

// accessModes are a claim's, as csi-provisioner passes them to a driver that can SINGLE_NODE_MULTI_WRITER.
var accessModes = map[string]csi.VolumeCapability_AccessMode_Mode{
	"ReadWriteOnce":    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	"ReadWriteOncePod": csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	"ReadOnlyMany":     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
	"ReadWriteMany":    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
}

// namesOf names the pod's claims, the one that is asked for among them.
func namesOf(spec lvm.Spec, claims api.PodClaims) string {
	_, claim, _ := strings.Cut(spec.Claim, "/")
	names := []string{claim}
	for _, c := range claims.Claims {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}
