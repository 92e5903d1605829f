package node

import (
	"context"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// NodeStageVolume makes a volume usable on this node: it activates the device, opens an encrypted one, formats one that was
// never mounted, mounts the file system at the staging path, and resizes it to the device (CSI spec, "NodeStageVolume"). lvm.KindConflict: the
// path is in use, or the device holds other data, and the driver has changed nothing.
func (s *Server) NodeStageVolume(ctx context.Context, req *csi.NodeStageVolumeRequest) (_ *csi.NodeStageVolumeResponse, err error) {
	r, err := parseStage(req)
	if err != nil {
		return nil, err
	}
	release, err := s.locks.lock(r.id.String())
	if err != nil {
		return nil, err
	}
	defer release()
	defer func() { err = s.unfinished(ctx, r.id, r.staging, err) }()
	opened, err := s.devices.Opening(r.id, r.uuid)
	if err != nil {
		return nil, err
	}
	defer opened()
	v, device, err := s.devices.ActivateAs(ctx, r.id, r.uuid, r.encryption)
	if err != nil {
		return nil, err
	}
	if r.block && r.encryption == lvm.EncryptionNone {
		return &csi.NodeStageVolumeResponse{}, nil // publishing binds the device itself
	}
	if err := s.stage(ctx, r, v, device); err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, nil
}

// unfinished returns the error of a call that may have left the volume mounted at a path. Only after lvm.KindBusy the kubelet unmounts the volume
// when the pod ends (cmd/nodelvm, codeIn). After lvm.KindExists and lvm.KindInvalid the path has what another request asked for.
func (s *Server) unfinished(ctx context.Context, id lvm.ID, path string, failed error) error {
	if failed == nil {
		return nil
	}
	if kind := lvm.KindOf(failed); kind == lvm.KindExists || kind == lvm.KindInvalid {
		return failed
	}
	info, err := s.mounts.Inspect(path)
	if err != nil || info.Mount == nil || s.checkOwner(ctx, id.String(), info) != nil {
		return failed
	}
	return lvm.Errorf(lvm.KindBusy, "%w", failed)
}

func (s *Server) stage(ctx context.Context, r stageRequest, v lvm.Volume, device string) (err error) {
	if r.hasSource && r.readOnly {
		if v.Access, err = s.accessOfCopy(v, device); err != nil {
			return err
		}
	}
	if v.Access != lvm.AccessWritable {
		if r, err = s.prepareReadOnly(ctx, r, v, device); err != nil {
			return err
		}
	}
	t, release, err := s.openTarget(ctx, r, v, device)
	if err != nil {
		return err
	}
	defer release()
	if r.block {
		return nil
	}
	return s.stageFileSystem(ctx, r, t)
}

// openTarget returns the device that the pods of the volume will use, and keeps it open until release.
func (s *Server) openTarget(ctx context.Context, r stageRequest, v lvm.Volume, device string) (t formatTarget, release func(), err error) {
	block, releaseLV, err := s.openDevice(ctx, volume{id: r.id, uuid: r.uuid}, device)
	if err != nil {
		return t, nil, err
	}
	t = formatTarget{device, block, filesystem.Mark{UUID: r.uuid, First: v.FormatMark}, filesystem.OriginOf(v, r.hasSource)}
	if r.encryption == lvm.EncryptionNone {
		return t, releaseLV, nil
	}
	mapping, releaseMapping, err := s.stageEncrypted(ctx, r, v, t)
	if err != nil {
		releaseLV()
		return t, nil, err
	}
	return mapping, func() { releaseMapping(); releaseLV() }, nil
}

// formatTarget is a device that may be formatted.
type formatTarget struct {
	device string
	mount.BlockDevice
	mark   filesystem.Mark
	origin filesystem.Origin
}

func (s *Server) stageFileSystem(ctx context.Context, r stageRequest, t formatTarget) error {
	info, err := s.mounts.Inspect(r.staging)
	if err != nil {
		return err
	}
	mounted, err := planStage(info, t.Number, r)
	if err != nil {
		return err
	}
	created := false
	if !mounted {
		if created, err = s.ensureFileSystem(ctx, r, t); err != nil {
			return err
		}
		if err := s.mountAt(info, false, func() error { return s.mountFileSystem(r, t.device) }); err != nil {
			return err
		}
	}
	if created || r.readOnly {
		return nil
	}
	return s.resize(ctx, r.id, t.device, r.staging, r.fsType)
}

func (s *Server) mountFileSystem(r stageRequest, device string) error {
	err := s.mounts.Mount(device, r.staging, r.fsType, mountOptions(r.volume))
	if err == nil || lvm.KindOf(err) != lvm.KindInternal {
		return err
	}
	if elsewhere, _ := s.mounts.Mounts(device); len(elsewhere) > 0 {
		return lvm.Errorf(lvm.KindConflict, "%w. The file system is mounted at %s, perhaps with options that exclude these, such as another SELinux label: unmount it there", err, elsewhere[0].Path)
	}
	return lvm.Errorf(lvm.KindInternal, "%w. The file system may be damaged (see the node's kernel log). %s", err, filesystem.Repair(device, r.fsType))
}

// mountOptions returns the options of the claim's class, and the driver's own. The kernel mounts a copied xfs file system,
// which has its origin's UUID, beside the origin only with nouuid, which changes nothing in it (xfs(5)). An ext4 superblock can
// request a kernel panic at the first error; errors= overrides it, and the class's own option, which comes later, overrides
// errors=.
func mountOptions(v volume) []string {
	switch {
	case v.fsType == "ext4":
		return append([]string{"errors=remount-ro"}, v.flags...)
	case v.hasSource && v.fsType == "xfs":
		return append(slices.Clone(v.flags), "nouuid")
	}
	return v.flags
}

// ensureFileSystem makes sure that the device has a sound file system of the requested type.
func (s *Server) ensureFileSystem(ctx context.Context, r stageRequest, t formatTarget) (created bool, err error) {
	content, err := s.probe(ctx, t)
	if err != nil {
		return false, err
	}
	act, err := filesystem.PlanContent(t.device, content, t.origin, r.fsType, t.Size)
	if err != nil {
		return false, err
	}
	switch act {
	case filesystem.ActFormat:
		return true, s.makeFileSystem(ctx, r, filesystem.Formatting{Device: t.device, Size: t.Size, Mark: t.mark, Type: r.fsType, Clear: content.Unfinished != ""})
	case filesystem.ActCheck:
		if r.replayed {
			return false, nil // checked before the replay; the device takes no writes
		}
		if content.Marked {
			if err := s.tools.RemoveMark(t.device, t.mark); err != nil {
				return false, err
			}
		}
		if r.hasSource && r.fsType == "btrfs" {
			if err := s.tools.SetUUID(ctx, t.device, r.uuid); err != nil {
				return false, err
			}
		}
		return false, s.tools.Fsck(ctx, t.device, r.fsType)
	case filesystem.ActMount:
	}
	return false, nil
}

// probe reads the content of a device. The mount table comes first: a missing device is an error, which blkid reports as blank.
func (s *Server) probe(ctx context.Context, t formatTarget) (filesystem.Content, error) {
	mounts, err := s.mounts.Mounts(t.device)
	if err != nil {
		return filesystem.Content{}, err
	}
	content, err := s.tools.Probe(ctx, t.device, t.mark)
	content.Mounted = len(mounts) > 0
	return content, err
}

func (s *Server) makeFileSystem(ctx context.Context, r stageRequest, f filesystem.Formatting) (err error) {
	if f.Options, err = filesystem.ParseOptions(r.fsType, r.mkfs); err != nil {
		return err
	}
	s.log.InfoContext(ctx, "creating a file system", "volume", r.id.String(), "device", f.Device, "type", f.Type, "options", r.mkfs, "afterInterruption", f.Clear)
	return s.tools.Format(ctx, f)
}

// mountAt creates the mount point if it is missing, and mounts; if that fails, it removes what it created.
func (s *Server) mountAt(info mount.PathInfo, file bool, attach func() error) error {
	var made []string
	if info.Kind == mount.PathAbsent {
		var err error
		if made, err = s.mounts.CreateMountPoint(info.Path, file); err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot create the mount point: %w", err)
		}
	}
	err := attach()
	if err == nil {
		return nil
	}
	for _, path := range slices.Backward(made) {
		if left := s.mounts.RemoveMountPoint(path); left != nil {
			s.log.Warn("cannot remove an empty mount point", "path", path, "error", left)
			break
		}
	}
	return err
}

// planStage reports whether the volume is mounted at a staging path. It refuses another mount, files, and the volume itself if it is
// staged with another type, access or SELinux label than requested (CSI spec, "NodeStageVolume Errors").
func planStage(p mount.PathInfo, device mount.DeviceNumber, r stageRequest) (mounted bool, err error) {
	if p.Mount != nil {
		switch {
		case p.Mount.Device != device:
			return false, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: %s (%s) is mounted there; unmount it and retry", p.Path, p.Mount.Source, p.Mount.FSType)
		case p.Mount.FSType != r.fsType:
			return false, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s with a file system of type %s, but %s was requested; unstage it there first",
				r.id, p.Path, p.Mount.FSType, r.fsType)
		case p.Mount.ReadOnly != r.mountReadOnly:
			return false, lvm.Errorf(lvm.KindExists, "volume %s is already staged at %s %s, but %s was requested; unstage it there first",
				r.id, p.Path, access(p.Mount.ReadOnly), access(r.mountReadOnly))
		}
		return true, checkLabel(r.volume, "staged", p)
	}
	if p.Kind != mount.PathAbsent && p.Kind != mount.PathEmptyDir {
		return false, lvm.Errorf(lvm.KindConflict, "cannot stage the volume at %s: it is %s, which a mount would hide; move it away and retry", p.Path, p.Kind)
	}
	return false, nil
}

// checkLabel refuses a mounted volume without the SELinux label that is requested: its pod could not read it. A request without a label is
// for any.
func checkLabel(v volume, is string, p mount.PathInfo) error {
	if missing := mount.MissingLabel(v.flags, p.Mount.Options); missing != "" {
		return lvm.Errorf(lvm.KindExists, "volume %s is already %s at %s with the options %s, but %s was requested; end the pods that use it, or request the same SELinux label",
			v.id, is, p.Path, p.Mount.Options, missing)
	}
	return nil
}

func access(readOnly bool) string {
	if readOnly {
		return "read-only"
	}
	return "writable"
}
