package controller

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// volumeReply describes a volume to the caller. All replies about new and existing volumes use it, so that a retry gets the
// same.
func volumeReply(volume lvm.Volume, node string) *csi.Volume {
	return &csi.Volume{
		VolumeId:           volume.ID.String(),
		CapacityBytes:      int64(volume.Size),
		VolumeContext:      Attributes(volume),
		ContentSource:      contentSource(volume.Source),
		AccessibleTopology: []*csi.Topology{topologyOf(node)},
	}
}

// Attributes returns a volume's attributes in its PersistentVolume, except those that come from its class.
func Attributes(volume lvm.Volume) map[string]string {
	attributes := map[string]string{
		api.AttributeUUID:        volume.UUID,
		api.AttributeVolumeGroup: string(volume.Group),
	}
	if (volume.Source != lvm.ID{}) {
		attributes[api.AttributeSource] = volume.Source.String()
	}
	if volume.Class.Encryption != lvm.EncryptionNone {
		attributes[api.AttributeEncryption] = string(volume.Class.Encryption)
	}
	return attributes
}

// snapshotReply is volumeReply for snapshots. A snapshot is complete once it exists: the driver copies nothing afterwards.
func snapshotReply(snapshot lvm.Snapshot, node string) *csi.Snapshot {
	reply := &csi.Snapshot{
		SnapshotId:     snapshot.ID.String(),
		SourceVolumeId: snapshot.Source.String(),
		SizeBytes:      int64(snapshot.Size),
		CreationTime:   timestamppb.New(snapshot.Created),
		ReadyToUse:     true,

		AccessibleTopology: []*csi.Topology{topologyOf(node)},
	}
	if snapshot.Member.Of != (lvm.ID{}) {
		reply.GroupSnapshotId = snapshot.Member.Of.String()
	}
	return reply
}

// contentSource is the inverse of parseSource; nil for an empty volume.
func contentSource(source lvm.ID) *csi.VolumeContentSource {
	switch {
	case source == lvm.ID{}:
		return nil
	case source.IsSnapshot():
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
			Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: source.String()},
		}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source.String()},
	}}
}
