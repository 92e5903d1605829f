package node

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// NodeStageVolume makes a volume usable on this node: its device is there, and for a file system it is made if the
// device is blank, mounted at the staging path, and grown if the device has become larger (CSI spec, "NodeStageVolume").
// lvm.KindForeign: the path is taken, or the device holds something else; nothing was changed then.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	r, err := parseStage(req)
	if err != nil {
		return nil, err
	}
	release, err := s.busy.alone(r.id.String())
	if err != nil {
		return nil, err
	}
	defer release()
	device, err := s.devices.Activate(ctx, r.id, r.uuid)
	if err != nil {
		return nil, err
	}
	if r.block {
		return &csi.NodeStageVolumeResponse{}, nil // publishing binds the device itself
	}
	if err := s.stage(ctx, r, device); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

func (s *Server) stage(ctx context.Context, r stageRequest, device string) error {
	block, err := s.fs.Stat(device)
	if err != nil {
		return err
	}
	place, err := s.fs.Look(r.staging)
	if err != nil {
		return err
	}
	act, err := planStage(place, block.Number)
	if err != nil {
		return err
	}
	if act != actNothing {
		if act, err = s.prepare(ctx, r, device, block.Size); err != nil {
			return err
		}
		if err := s.mountAt(place, false, func() error { return s.fs.Mount(device, r.staging, r.fsType, mountOptions(r.volume)) }); err != nil {
			return err
		}
	}
	if act == actFormat || r.readOnly {
		return nil
	}
	return s.grow(ctx, r.id, device, r.staging, r.fsType)
}

// mountOptions are those of the claim's class. A copy of an xfs file system has its origin's UUID, and is mounted beside
// it only by this option; nothing of it is changed (xfs(5), "nouuid").
func mountOptions(v volume) []string {
	if v.copied && v.fsType == "xfs" {
		return append(slices.Clone(v.flags), "nouuid")
	}
	return v.flags
}

// prepare makes sure that the device holds a sound file system of the wanted type, and tells what it did.
func (s *Server) prepare(ctx context.Context, r stageRequest, device string, size lvm.Bytes) (action, error) {
	content, err := s.fs.Probe(ctx, device)
	if err != nil {
		return 0, err
	}
	act, err := planContent(device, content, r.fsType, size)
	if err != nil {
		return 0, err
	}
	switch act {
	case actFormat:
		s.log.InfoContext(ctx, "making a file system", "volume", r.id.String(), "device", device, "type", r.fsType, "options", r.mkfs)
		return act, s.fs.Format(ctx, device, r.fsType, r.mkfs)
	case actCheck:
		if r.copied && r.fsType == "btrfs" {
			if err := s.fs.Renew(ctx, device, btrfsUUID(r.uuid)); err != nil {
				return 0, err
			}
		}
		return act, s.fs.Check(ctx, device, r.fsType)
	case actNothing, actMount, actAnew:
	}
	return act, nil
}

// mountAt makes what is missing at the place, and mounts; if that fails, what it made goes again.
func (s *Server) mountAt(place Place, file bool, mount func() error) error {
	if place.Kind == PlaceAbsent {
		if err := s.fs.Make(place.Path, file); err != nil {
			return lvm.Errorf(lvm.KindInternal, "there is no place to mount at: %w", err)
		}
	}
	err := mount()
	if err != nil && place.Kind == PlaceAbsent {
		if left := s.fs.Remove(place.Path); left != nil {
			s.log.Warn("an empty mount point stays behind", "path", place.Path, "error", left)
		}
	}
	return err
}

// NodeUnstageVolume unmounts the staging path, which itself is the CO's and stays (CSI spec, "NodeUnstageVolume"). LVM is
// not asked, and the device stays active. lvm.KindInUse: files are open there.
func (s *Server) NodeUnstageVolume(_ context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, errNoVolume
	}
	staging, err := parsePath("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	release, err := s.busy.alone(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if _, err := s.unmountAll(staging); err != nil {
		return nil, err
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// mountsAtOnePath is more than anybody stacks; it ends the loop below should unmounting do nothing.
const mountsAtOnePath = 16

// unmountAll unmounts what is mounted at a path, stacked mounts included, and returns what it then finds.
func (s *Server) unmountAll(path string) (Place, error) {
	for range mountsAtOnePath {
		place, err := s.fs.Look(path)
		if err != nil || place.Mount == nil {
			return place, err
		}
		if err := s.fs.Unmount(path); err != nil {
			return place, err
		}
	}
	return Place{}, lvm.Errorf(lvm.KindInternal, "%s is still mounted after %d unmounts", path, mountsAtOnePath)
}
