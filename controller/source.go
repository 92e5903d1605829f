package controller

import (
	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// parseSource returns the source of a volume; the zero ID for an empty volume. lvm.KindNotFound: the handle is none that this
// driver can have given to a snapshot or a volume.
func parseSource(source *csi.VolumeContentSource) (lvm.ID, error) {
	switch {
	case source == nil:
		return lvm.ID{}, nil
	case source.GetSnapshot() != nil:
		return parseSnapshot(source.GetSnapshot().GetSnapshotId())
	case source.GetVolume() != nil:
		id, err := lvm.ParseID(source.GetVolume().GetVolumeId())
		if err != nil || id.IsSnapshot() {
			return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no volume %q to clone; no volume of this driver has such a handle", source.GetVolume().GetVolumeId())
		}
		return id, nil
	}
	return lvm.ID{}, lvm.Errorf(lvm.KindInvalid, "the request has a volume_content_source of an unknown kind; it can be a snapshot or a volume")
}

// parseSnapshot parses a snapshot's handle. lvm.KindNotFound: no snapshot can have it.
func parseSnapshot(handle string) (lvm.ID, error) {
	id, err := lvm.ParseID(handle)
	if err != nil || !id.IsSnapshot() {
		return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no snapshot %q; no snapshot of this driver has such a handle", handle)
	}
	return id, nil
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
