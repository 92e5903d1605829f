package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// NodePublishVolume binds a staged volume to a pod's path: the file system's directory, or the device over a file (CSI
// spec, "NodePublishVolume"). Several pods of the node may have it at once. lvm.KindForeign: the path is taken, or the
// volume is not staged; lvm.KindExists: it is there already, read-only, and was asked for writing; lvm.KindInUse: another pod has
// it, and it is for one at a time.
func (s *Server) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	r, err := parsePublish(req)
	if err != nil {
		return nil, err
	}
	release, err := s.holdTarget(r.id.String(), r.target, r.onePod)
	if err != nil {
		return nil, err
	}
	defer release()
	device, active, err := s.devices.Device(r.id, r.uuid)
	if err == nil && !active {
		device, err = s.devices.Activate(ctx, r.id, r.uuid)
	}
	if err != nil {
		return nil, err
	}
	if err := s.publish(r, device); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// holdTarget keeps others from the target path, and from unstaging the volume; alone, from all work on it.
func (s *Server) holdTarget(volume, target string, alone bool) (release func(), err error) {
	hold := s.busy.shared
	if alone {
		hold = s.busy.alone
	}
	releaseVolume, err := hold(volume)
	if err != nil {
		return nil, err
	}
	releaseTarget, err := s.busy.alone(target)
	if err != nil {
		releaseVolume()
		return nil, err
	}
	return func() { releaseTarget(); releaseVolume() }, nil
}

func (s *Server) publish(r publishRequest, device string) error {
	block, err := s.fs.Stat(device)
	if err != nil {
		return err
	}
	target, err := s.fs.Look(r.target)
	if err != nil {
		return err
	}
	source, staged := device, Place{}
	if !r.block {
		source = r.staging
		if staged, err = s.fs.Look(r.staging); err != nil {
			return err
		}
	}
	mounts, err := s.fs.Mounts(device)
	if err != nil {
		return err
	}
	act, err := planPublish(r, target, staged, mounts, block.Number)
	if err != nil {
		return err
	}
	options := []string{"bind"}
	if r.readOnly {
		options = append(options, "ro")
	}
	switch act {
	case actAnew:
		if _, err := s.unmountAll(r.target); err != nil {
			return err
		}
	case actMount:
	case actNothing, actFormat, actCheck:
		return nil
	}
	return s.mountAt(target, r.block, func() error { return s.fs.Mount(source, r.target, "", options) })
}

// NodeUnpublishVolume takes a volume from a pod's path, and removes the path (CSI spec, "NodeUnpublishVolume"). LVM is
// not asked. lvm.KindInUse: files are open there; lvm.KindForeign: something else is there, and is left alone.
func (s *Server) NodeUnpublishVolume(_ context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errNoVolume
	}
	target, err := parsePath("target_path", req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	release, err := s.holdTarget(req.GetVolumeId(), target, false)
	if err != nil {
		return nil, err
	}
	defer release()
	place, err := s.unmountAll(target)
	if err != nil {
		return nil, err
	}
	if err := removable(place); err != nil {
		return nil, err
	}
	if err := s.fs.Remove(target); err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "the empty mount point could not be removed: %w", err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
