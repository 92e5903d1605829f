package node

import (
	"context"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/luks"
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
	Check(v luks.Volume) (luks.Health, error)
	// Mapping returns the device of an open volume.
	Mapping(handle string) (device string, number uint64, open bool, err error)
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

// currentDevice returns the device that the pods of a volume use: the mapping of an encrypted volume, else its logical volume.
func (s *Server) currentDevice(v volume) (device string, active bool, err error) {
	if v.encryption == lvm.EncryptionNone {
		return s.devices.Device(v.id, v.uuid)
	}
	device, _, active, err = s.encryption.Mapping(v.id.String())
	return device, active, err
}

// stageEncrypted opens an encrypted volume, and keeps its mapping open until release. The caller keeps the logical volume open.
func (s *Server) stageEncrypted(ctx context.Context, r stageRequest, v lvm.Volume, lv string) (device string, block BlockDevice, release func(), err error) {
	mark := Mark{UUID: r.uuid, First: v.FormatMark}
	device, err = s.encryption.Stage(ctx, luks.Request{
		Volume: luks.Volume{Handle: r.id.String(), UUID: r.uuid, Device: lv, Copied: r.hasSource, Block: r.block},
		Keys:   r.keys, Options: luks.Options{Discards: passesDiscards(v.Class, r.flags)},
		Blank: func(ctx context.Context) error { return s.checkBlank(ctx, lv, mark, originOf(v, r.hasSource)) },
		// Now package luks has its own mark. Once the mapping is open, the page cache of the logical volume shows what was there before.
		Formatted: func() error { return s.fs.RemoveMark(lv, mark) },
		Cleared:   func(mapping string) error { return s.markMapping(r, mapping, mark) },
	})
	if err != nil {
		return "", block, nil, err
	}
	block, release, err = s.openDevice(r.volume, device)
	return device, block, release, err
}

// mappingMark is the format mark on the mapping of an encrypted volume.
func mappingMark(m Mark) Mark {
	if m.First != 0 {
		m.First -= lvm.LUKSHeaderSize
	}
	return m
}

// markMapping writes the format mark to a new mapping, if a file system follows on it.
func (s *Server) markMapping(r stageRequest, mapping string, mark Mark) error {
	if r.block || mark.First == 0 {
		return nil
	}
	return s.fs.WriteMark(mapping, mappingMark(mark))
}

// passesDiscards reports whether the mapping passes discards, which show on the disk which blocks are free. Without them a thin
// pool never regains space.
func passesDiscards(class lvm.Class, mountOptions []string) bool {
	for _, option := range splitMountOptions(mountOptions) {
		if option == "discard" || option == "discard=async" || option == "discard=sync" {
			return true
		}
	}
	return class.Layout == lvm.LayoutThin
}

// checkBlank refuses (lvm.KindConflict) a logical volume that luksFormat may not overwrite: one that is mounted, has content, or may have
// been in use. A raw volume may be formatted with LUKS, below its content.
func (s *Server) checkBlank(ctx context.Context, device string, mark Mark, o origin) error {
	content, err := s.fs.Probe(ctx, device, mark)
	if err != nil {
		return err
	}
	if content.Blank() && !content.Mounted {
		o.raw = false
		return checkFormat(device, content, o, "luks")
	}
	content.Others = []string{content.describe() + " instead of a LUKS header"}
	return refuseContent(device, content, o, "luks")
}

// describe names all findings.
func (c Content) describe() string {
	var found []string
	if c.Type != "" {
		found = append(found, "a file system of type "+c.Type)
	}
	if c.Unfinished != "" {
		found = append(found, "the beginning of a file system of type "+c.Unfinished)
	}
	if found = append(found, c.Others...); len(found) == 0 {
		return "a mounted file system"
	}
	return joinAnd(found)
}

// expandMapping resizes the mapping of an encrypted volume to its logical volume, which it keeps open meanwhile. A Secret that is wrong is
// lvm.KindConflict: the expansion is repeated, because the Secret can be corrected.
func (s *Server) expandMapping(ctx context.Context, r expandRequest, v lvm.Volume) (lvm.Bytes, error) {
	lv := volume{id: v.ID, uuid: v.UUID}
	device, active, err := s.currentDevice(lv)
	if err == nil && !active {
		err = lvm.Errorf(lvm.KindNotFound, "volume %s is not in use on this node: it has no device", v.ID)
	}
	if err != nil {
		return 0, err
	}
	_, release, err := s.openDevice(lv, device)
	if err != nil {
		return 0, err
	}
	defer release()
	request := luks.Request{Volume: luks.Volume{Handle: v.ID.String(), UUID: v.UUID, Device: device, Copied: v.Source != lvm.ID{}, Block: r.block}}
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
	mounts, err := s.fs.Mounts(device)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return lvm.Errorf(lvm.KindInUse, "volume %s is encrypted and cannot be closed: %s is still mounted at %s; unmount it there first", handle, device, mounts[0].Path)
	}
	return s.encryption.Unstage(ctx, handle)
}

// isMapping reports whether a device is the mapping of an encrypted volume.
func (s *Server) isMapping(handle string, device DeviceNumber) (bool, error) {
	_, number, open, err := s.encryption.Mapping(handle)
	return open && DeviceNumber(number) == device, err
}
