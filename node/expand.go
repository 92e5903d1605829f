package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// expandRequest is a parsed NodeExpandVolumeRequest.
type expandRequest struct {
	id              lvm.ID
	path            string // mount point of the volume: the staging path, or a pod's if the caller names no other
	required        lvm.Bytes
	block, readOnly bool // as the caller says, if it does
	secret          map[string]string
}

// NodeExpandVolume resizes the mapping of an encrypted volume and a mounted file system to the volume, which
// ControllerExpandVolume has expanded before (CSI spec, "NodeExpandVolume"). A raw device needs nothing, and what has the full
// size does not change. lvm.KindNotFound: the volume is not at the path; lvm.KindOutOfRange: it is smaller than requested.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	r, err := parseExpand(req)
	if err != nil {
		return nil, err
	}
	release, err := s.locks.lock(r.id.String())
	if err != nil {
		return nil, err
	}
	defer release()
	v, device, block, err := s.deviceOf(ctx, r.id)
	if err == nil && v.Class.Encryption != lvm.EncryptionNone {
		err = s.withoutLimits(ctx, v, device, block.Number, func() (err error) {
			block.Size, err = s.expandMapping(ctx, r, v)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	if block.Size < r.required {
		return nil, lvm.Errorf(lvm.KindOutOfRange, "volume %s has %s, and %s is requested: ControllerExpandVolume must expand it first", r.id, block.Size, r.required)
	}
	if err := s.expand(ctx, r, device, block.Number); err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: int64(block.Size)}, nil
}

func (s *Server) expand(ctx context.Context, r expandRequest, device string, number mount.DeviceNumber) error {
	if r.block {
		return nil
	}
	info, err := s.mounts.Inspect(r.path)
	switch {
	case err != nil:
		return err
	case info.Kind == mount.PathDevice && info.Device == number:
		return nil
	case info.Mount == nil || info.Mount.Device != number:
		return lvm.Errorf(lvm.KindNotFound, "volume %s is not mounted at %s", r.id, r.path)
	case r.readOnly:
		return nil // the driver resizes it when it is staged for writing
	case !info.Mount.ReadOnly:
		return s.resize(ctx, r.id, device, r.path, info.Mount.FSType)
	}
	// A pod may have a read-only mount of a file system that is mounted for writing elsewhere on this node.
	mounts, err := s.mounts.Mounts(device)
	if err != nil {
		return err
	}
	for _, other := range mounts {
		if !other.ReadOnly {
			return s.resize(ctx, r.id, device, other.Path, info.Mount.FSType)
		}
	}
	return nil
}

// resize resizes a mounted file system if its device is larger; if not, it starts no process.
func (s *Server) resize(ctx context.Context, id lvm.ID, device, path, fsType string) error {
	more, err := s.tools.CanResize(device, fsType)
	if err != nil || !more {
		return err
	}
	s.log.InfoContext(ctx, "resizing the file system to its volume", "volume", id.String(), "device", device, "type", fsType)
	return s.tools.Resize(device, path, fsType)
}

func parseExpand(req *csi.NodeExpandVolumeRequest) (r expandRequest, err error) {
	if r.id, r.path, err = parseUsedVolume(req.GetVolumeId(), req.GetVolumePath(), req.GetStagingTargetPath()); err != nil {
		return r, err
	}
	size := req.GetCapacityRange()
	if size.GetRequiredBytes() < 0 || size.GetLimitBytes() < 0 {
		return r, lvm.Errorf(lvm.KindInvalid, "capacity_range has %d required bytes and a limit of %d; they cannot be negative", size.GetRequiredBytes(), size.GetLimitBytes())
	}
	r.required, r.secret = lvm.Bytes(size.GetRequiredBytes()), req.GetSecrets()
	if req.GetVolumeCapability() == nil { // it is optional
		return r, nil
	}
	v, err := parseCapability(req.GetVolumeCapability())
	r.block, r.readOnly = v.block, v.readOnly
	return r, err
}
