package node

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

// A read-only copy begins with what its source had at one moment, as after a power cut: its file system may need its journal. A mount that
// skips the journal loses files that an fsync promised, and the kernel replays no journal onto a read-only device. So the driver mounts such a
// volume once for writing, before any pod uses it, unmounts it, and records that (lvm.AccessReadOnly). From then on it mounts it
// read-only, and nothing writes to it any more. Before the record all of this can be repeated:
//
//	record the begin -> check and mount for writing -> sync, still writable? -> unmount -> close the mapping -> flush and record, in one commit -> mount read-only

// prepareReadOnly replays the journal of a read-only copy, if that was never done, and returns the request for a read-only stage.
// lvm.KindInvalid: the request is for writing.
func (s *Server) prepareReadOnly(ctx context.Context, r stageRequest, v lvm.Volume, device string) (stageRequest, error) {
	if err := checkReadOnly(r.volume, v); err != nil {
		return r, err
	}
	if v.Access.NeedsReplay() && !r.block {
		if err := s.replay(ctx, r, v, device); err != nil {
			return r, err
		}
	}
	r.flags, r.mountReadOnly, r.replayed = append(slices.Clone(r.flags), "ro"), true, true
	return r, nil
}

// accessOfCopy returns who may write to a copy that pods only read. While its group's metadata cannot be read, nothing says that a volume is a
// read-only copy. But one whose journal was replayed has a device that takes no writes, so that a check of the file system and a mount for
// writing fail.
func (s *Server) accessOfCopy(v lvm.Volume, device string) (lvm.Access, error) {
	if v.Access != lvm.AccessWritable {
		return v.Access, nil
	}
	readOnly, err := s.block.ReadOnly(device)
	if err == nil && readOnly {
		return lvm.AccessReadOnly, nil
	}
	return v.Access, err
}

// checkReadOnly refuses (lvm.KindInvalid) a read-only copy for a request for writing.
func checkReadOnly(r volume, v lvm.Volume) error {
	if v.Access.ReadOnly() && !r.readOnly {
		return lvm.Errorf(lvm.KindInvalid, "volume %s is a read-only copy, and its PersistentVolume is for writing: the only access mode of such a volume is ReadOnlyMany", r.id)
	}
	return nil
}

// replay replays the journal, and records that. An interrupted replay may have left the file system mounted, or the mapping open.
func (s *Server) replay(ctx context.Context, r stageRequest, v lvm.Volume, device string) error {
	s.log.InfoContext(ctx, "replaying the journal of a read-only copy", "volume", r.id.String(), "device", device, "type", r.fsType)
	if err := s.devices.BeginReplay(ctx, r.id, r.uuid); err != nil {
		return err
	}
	if err := s.mountForReplay(ctx, r, v, device); err != nil {
		return err
	}
	if r.encryption != lvm.EncryptionNone {
		if err := s.closeMapping(ctx, r.id.String()); err != nil {
			return err
		}
	}
	return s.devices.SetReplayed(ctx, r.id, r.uuid)
}

func (s *Server) mountForReplay(ctx context.Context, r stageRequest, v lvm.Volume, device string) error {
	r.flags, r.mountReadOnly = append(slices.Clone(r.flags), "rw"), false // the last of ro and rw counts
	info, err := s.unmountAll(ctx, r.id.String(), r.staging)
	if err != nil {
		return err
	}
	t, release, err := s.openTarget(ctx, r, v, device)
	if err != nil {
		return err
	}
	defer release()
	if _, err := planStage(info, t.Number, r); err != nil {
		return err
	}
	if _, err := s.ensureFileSystem(ctx, r, t); err != nil {
		return err
	}
	if err := s.mountAt(info, false, func() error { return s.mountFileSystem(r, t.device) }); err != nil {
		return err
	}
	replayed := s.checkReplayed(r, t.Number)
	_, err = s.unmountAll(ctx, r.id.String(), r.staging)
	return errors.Join(replayed, err)
}

// checkReplayed returns an error if the mounted file system may not have replayed its journal whole: what it wrote does not reach the disks, or
// it became read-only meanwhile, as ext4 does after an error. The unmount itself reports neither.
func (s *Server) checkReplayed(r stageRequest, device mount.DeviceNumber) error {
	mounts, err := s.mounted.FileSystems()
	if err != nil {
		return err
	}
	if len(mounts[device]) == 0 {
		return lvm.Errorf(lvm.KindBusy, "volume %s was unmounted during the replay of its journal; retry", r.id)
	}
	written := s.syncFirst(mounts[device])
	if mounts, err = s.mounted.FileSystems(); err != nil {
		return err
	}
	failed, err := s.mounted.Failed()
	if err != nil {
		return err
	}
	readOnly := slices.ContainsFunc(mounts[device], func(m mount.FileSystem) bool { return m.ReadOnly })
	if written == nil && !readOnly && !slices.Contains(failed, device) {
		return nil
	}
	if written == nil {
		written = errors.New("the kernel made it read-only after an error")
	}
	return lvm.Errorf(lvm.KindInternal, "the journal of the read-only copy %s is not replayed: %w; the node's kernel log says what failed. "+
		"Replace the disk, or free space for the thin pool, and the driver replays it at the next retry. If both work, check the file system of the copy's source, and copy a new snapshot of it", r.id, written)
}
