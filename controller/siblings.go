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

// Siblings is what this service needs of the cluster.
type Siblings interface {
	// Asked is called at the start of each request for a claim's volume, and answered at its end.
	Asked(namespace, claim string) (answered func())
	// Company finds what a claim is of use together with; none: the zero Company.
	Company(ctx context.Context, namespace, claim string) (Company, error)
	// Waiting tells whether a claim is still there and still without a volume. It is asked often, and answers from memory.
	Waiting(namespace, claim, uid string) bool
	// Given tells whether it waits for a volume on this very node. From memory too.
	Given(namespace, claim, uid string) bool
	// MayRestore tells whether the claim's volume may be made as a copy of this snapshot of the node: nil, lvm.KindBusy for
	// "ask again", or lvm.KindInvalid or lvm.KindNotFound.
	MayRestore(ctx context.Context, namespace, claim, uid string, of lvm.ID) error
	// Warn reports a warning event on the claim. It does not repeat a message with the same reason while that condition lasts.
	Warn(ctx context.Context, namespace, claim, uid, reason, message string)
}

// Company are the pods that wait for a node with a claim, or with claims that they share, and their other claims of this driver.
type Company struct {
	Pods   []string // their names; none: there is none
	PodUID string   // of the first: refusals are remembered by it
	Claims []Sibling
}

// Sibling is a claim.
type Sibling struct {
	Name, UID string
	Node      string // that its volume is on or, if it is not bound, that is selected for it; "": none yet
	Bound     bool
	Indirect  bool // no pod uses both: the claims of further pods connect the two

	// Of one that is not bound: what its own CreateVolume will ask for.
	Size        int64 // bytes
	Block       bool  // a raw device
	AccessModes []string
	Parameters  map[string]string // its StorageClass'
}

// need begins a sentence on what the pods need.
func (c Company) need() string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " needs"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, need"
}

// stuck begins a sentence on why they cannot run.
func (c Company) stuck() string {
	if len(c.Pods) == 1 {
		return "pod " + c.Pods[0] + " cannot be scheduled"
	}
	return "pods " + strings.Join(c.Pods, " and ") + ", which share claims, cannot all be scheduled"
}

// request is what csi-provisioner will ask for. A copy is asked for without its source: it takes as much room as an empty
// volume.
func (c Sibling) request(namespace string) *csi.CreateVolumeRequest {
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
func namesOf(spec lvm.Spec, company Company) string {
	_, claim, _ := strings.Cut(spec.Claim, "/")
	names := []string{claim}
	for _, c := range company.Claims {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " and ")
}
