package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/luks"
	"github.com/nodelvm/nodelvm/node/mount"
)

// Encryption is what this service needs of package luks; *luks.Manager implements it. Pods use the mapping of an encrypted
// volume as their device. Volumes without encryption appear here only if a request has nothing but a handle.
type Encryption interface {
	// Stage formats a blank volume, opens it, and returns its mapping's device.
	Stage(ctx context.Context, r luks.Request) (device string, err error)
	// Expand resizes the mapping of an open volume to its logical volume.
	Expand(ctx context.Context, r luks.Request) (device string, size lvm.Bytes, err error)
	// Unstage closes a volume. It ignores one that is closed or not encrypted.
	Unstage(ctx context.Context, handle string) error
	// Check reads the header of a volume.
	Check(v luks.Volume) (problem string, err error)
	// Mapping returns the device of an open volume.
	Mapping(handle string) (device string, number uint64, open bool, err error)
}

// encryptedVolume describes a volume on a device for package luks. hasSource: its attributes say that it was restored or cloned. One that has moved here has
// the header of the logical volume on its former node.
func encryptedVolume(v lvm.Volume, device string, hasSource, block bool) luks.Volume {
	e := luks.NewVolume(v.ID.String(), v.UUID, device)
	e.Moved, e.Block = hasMoved(v, hasSource), block
	e.Copied = e.Moved || hasSource || v.Source != lvm.ID{}
	return e
}

// hasMoved reports whether a volume's content is that of its logical volume on another node; a copy is another volume.
func hasMoved(v lvm.Volume, hasSource bool) bool {
	return v.Move != "" && !hasSource && v.Source == lvm.ID{}
}

// parseKeys parses the Secret of a request for an encrypted volume. field is the PersistentVolume's field that names the
// Secret.
func parseKeys(id lvm.ID, secret map[string]string, field string) (luks.Keys, error) {
	if len(secret) == 0 {
		return luks.Keys{}, lvm.Errorf(lvm.KindInvalid, "volume %s is encrypted, and the kubelet passed no Secret: its PersistentVolume has no %s, because its StorageClass names no Secret; create a class as docs/howto/encryption.md shows", id, field)
	}
	keys, err := luks.ParseSecret(secret)
	if err != nil {
		return luks.Keys{}, lvm.Errorf(lvm.KindOf(err), "volume %s, Secret in %s of its PersistentVolume: %w", id, field, err)
	}
	return keys, nil
}

const (
	stageSecret  = "csi.nodeStageSecretRef"
	expandSecret = "csi.nodeExpandSecretRef"
)

// stageEncrypted opens an encrypted volume, and keeps its mapping open until release. The caller keeps the logical volume open.
func (s *Server) stageEncrypted(ctx context.Context, r stageRequest, v lvm.Volume, lv formatTarget) (mapping formatTarget, release func(), err error) {
	mapping = lv
	if mapping.mark.First != 0 {
		mapping.mark.First -= lvm.LUKSHeaderSize
	}
	mapping.mark.Moved = hasMoved(v, r.hasSource)
	mapping.device, err = s.encryption.Stage(ctx, luks.Request{
		Volume: encryptedVolume(v, lv.device, r.hasSource, r.block), Keys: r.keys, Discards: passesDiscards(v.Class, r.flags), ReadOnly: r.replayed,
		Blank: func(ctx context.Context) error {
			content, err := s.probe(ctx, lv)
			if err != nil {
				return err
			}
			return filesystem.CheckBlank(lv.device, content, lv.origin)
		},
		// Now package luks has its own mark. Once the mapping is open, the page cache of the logical volume shows what was there before.
		Formatted: func() error { return s.tools.RemoveMark(lv.device, lv.mark) },
		Cleared: func(device string) error {
			if r.block || mapping.mark.First == 0 { // no file system follows
				return nil
			}
			return s.tools.WriteMark(device, mapping.mark)
		},
	})
	if err != nil {
		return mapping, nil, err
	}
	mapping.BlockDevice, release, err = s.openDevice(ctx, r.volume, mapping.device)
	return mapping, release, err
}

// passesDiscards reports whether the mapping passes discards, which show on the disk which blocks are free. Without them a thin
// pool never regains space.
func passesDiscards(class lvm.Class, mountOptions []string) bool {
	for _, option := range mount.SplitOptions(mountOptions) {
		if option == "discard" || option == "discard=async" || option == "discard=sync" {
			return true
		}
	}
	return class.Layout == lvm.LayoutThin
}

// expandMapping resizes the mapping of an encrypted volume to its logical volume, which it keeps open meanwhile. A Secret that is wrong is
// lvm.KindConflict: the expansion is repeated, because the Secret can be corrected.
func (s *Server) expandMapping(ctx context.Context, r expandRequest, v lvm.Volume) (lvm.Bytes, error) {
	lv := volume{id: v.ID, uuid: v.UUID}
	device, active, err := s.currentDevice(ctx, lv)
	if err == nil && !active {
		err = notInUse(v.ID)
	}
	if err != nil {
		return 0, err
	}
	_, release, err := s.openDevice(ctx, lv, device)
	if err != nil {
		return 0, err
	}
	defer release()
	request := luks.Request{Volume: encryptedVolume(v, device, false, r.block)}
	if len(r.secret) > 0 {
		if request.Keys, err = parseKeys(v.ID, r.secret, expandSecret); err != nil {
			return 0, lvm.Errorf(lvm.KindConflict, "%w", err)
		}
	}
	_, size, err := s.encryption.Expand(ctx, request)
	return size, err
}

// closeMapping closes an encrypted volume. It refuses (lvm.KindInUse) one that is bound at a pod's path: a bind mount does not
// keep the mapping open, and the next device would get its number.
func (s *Server) closeMapping(ctx context.Context, handle string) error {
	device, _, open, err := s.encryption.Mapping(handle)
	if err != nil || !open {
		return err
	}
	mounts, err := s.mounts.Mounts(device)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return lvm.Errorf(lvm.KindInUse, "volume %s is encrypted and cannot be closed: %s is still mounted at %s; unmount it there first", handle, device, mounts[0].Path)
	}
	return s.encryption.Unstage(ctx, handle)
}

// isMapping reports whether a device is the mapping of an encrypted volume.
func (s *Server) isMapping(handle string, device mount.DeviceNumber) (bool, error) {
	_, number, open, err := s.encryption.Mapping(handle)
	return open && mount.DeviceNumber(number) == device, err
}
