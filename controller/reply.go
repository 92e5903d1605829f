package controller

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// volumeReply describes a volume to the caller. Fresh or found, created or listed: there is this one description, so
// that a retry cannot answer differently.
func volumeReply(volume lvm.Volume, node string) *csi.Volume {
	return &csi.Volume{
		VolumeId:      volume.ID.String(),
		CapacityBytes: int64(volume.Size),
		VolumeContext: map[string]string{
			AttributeUUID:  volume.UUID,
			AttributeGroup: volume.Group,
		},
		AccessibleTopology: []*csi.Topology{topologyOf(node)},
	}
}
