package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// NodeGetVolumeStats returns the usage of a file system, or the size of a raw device (CSI spec, "NodeGetVolumeStats"). It
// starts no process. lvm.KindNotFound: the volume does not exist, has no device, or is not at that path.
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	id, path, err := parseUsedVolume(req.GetVolumeId(), req.GetVolumePath(), "")
	if err != nil {
		return nil, err
	}
	_, _, device, err := s.deviceOf(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := s.mounts.Inspect(path)
	if err != nil {
		return nil, err
	}
	switch {
	case info.Kind == mount.PathDevice && info.Device == device.Number:
		return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: int64(device.Size)}}}, nil
	case info.Mount == nil || info.Mount.Device != device.Number:
		return nil, lvm.Errorf(lvm.KindNotFound, "volume %s is not mounted at %s", id, path)
	}
	usage, err := s.mounted.Usage(path)
	if err != nil {
		return nil, err
	}
	reply := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: int64(usage.Total), Used: int64(usage.Used), Available: int64(usage.Available)},
	}}
	if usage.Inodes > 0 { // btrfs does not count them
		reply.Usage = append(reply.Usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: usage.Inodes, Used: usage.InodesUsed, Available: usage.InodesFree})
	}
	return reply, nil
}
