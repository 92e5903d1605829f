package node

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/luks"
	"github.com/nodelvm/nodelvm/node/mount"
)

// volume is the part of a request that describes the volume.
type volume struct {
	id       lvm.ID
	uuid     string // the logical volume's own
	block    bool   // requested as a raw device; otherwise as a file system
	fsType   string
	flags    []string // mount options
	readOnly bool
	// mountReadOnly: the mount options mount the file system read-only for all pods.
	mountReadOnly bool
	onePod        bool   // for one pod at a time
	hasSource     bool   // it was restored from a snapshot or cloned
	replayed      bool   // a read-only copy whose journal was replayed: it is mounted read-only
	mkfs          string // further options of mkfs, for a new file system only
	encryption    lvm.Encryption
}

// stageRequest is a parsed NodeStageVolumeRequest.
type stageRequest struct {
	volume
	staging string
	keys    luks.Keys // of an encrypted volume
}

// publishRequest is a parsed NodePublishVolumeRequest.
type publishRequest struct {
	volume
	staging, target string
}

// parseStage parses a request. lvm.KindInvalid: a field is missing or malformed; lvm.KindNotFound: no volume can have the
// handle.
func parseStage(req *csi.NodeStageVolumeRequest) (stageRequest, error) {
	staging, err := parseVolumePath(req.GetVolumeId(), "staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return stageRequest{}, err
	}
	v, err := parseVolume(req.GetVolumeId(), req.GetVolumeContext(), req.GetVolumeCapability())
	r := stageRequest{volume: v, staging: staging}
	if err == nil && v.encryption != lvm.EncryptionNone {
		r.keys, err = parseKeys(v.id, req.GetSecrets(), stageSecret)
	}
	return r, err
}

// parsePublish is parseStage for NodePublishVolume.
func parsePublish(req *csi.NodePublishVolumeRequest) (publishRequest, error) {
	target, err := parseVolumePath(req.GetVolumeId(), "target_path", req.GetTargetPath())
	if err != nil {
		return publishRequest{}, err
	}
	staging, err := parsePath("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return publishRequest{}, err
	}
	v, err := parseVolume(req.GetVolumeId(), req.GetVolumeContext(), req.GetVolumeCapability())
	v.readOnly = v.readOnly || req.GetReadonly()
	return publishRequest{v, staging, target}, err
}

// parseVolumePath returns the path of a request that must name a volume.
func parseVolumePath(handle, field, path string) (string, error) {
	if handle == "" {
		return "", errNoVolume
	}
	return parsePath(field, path)
}

var errNoVolume = lvm.Errorf(lvm.KindInvalid, "the request names no volume_id")

// parseUsedVolume parses the request for a volume that is in use at a path. lvm.KindNotFound: no volume can have the handle or be at the path.
func parseUsedVolume(handle, volumePath, stagingPath string) (id lvm.ID, path string, err error) {
	switch {
	case handle == "":
		return id, "", errNoVolume
	case volumePath == "":
		return id, "", lvm.Errorf(lvm.KindInvalid, "the request has no volume_path")
	}
	if id, err = parseHandle(handle); err != nil {
		return id, "", err
	}
	if path, err = parsePath("volume_path", cmp.Or(stagingPath, volumePath)); err != nil {
		return id, "", lvm.Errorf(lvm.KindNotFound, "volume %s is not at this path: %w", id, err)
	}
	return id, path, nil
}

func parseVolume(handle string, attributes map[string]string, capability *csi.VolumeCapability) (volume, error) {
	v, err := parseCapability(capability)
	if err != nil {
		return volume{}, err
	}
	if v.id, err = parseHandle(handle); err != nil {
		return volume{}, err
	}
	if v.uuid = attributes[api.AttributeUUID]; v.uuid == "" {
		return volume{}, lvm.Errorf(lvm.KindInvalid, "volume %s: the volume attribute %s is missing; it must hold the logical volume's UUID (lvs -o lv_uuid)", v.id, api.AttributeUUID)
	}
	v.hasSource = attributes[api.AttributeSource] != ""
	v.mkfs = attributes[api.AttributeMkfsOptions]
	if v.encryption = lvm.Encryption(attributes[api.AttributeEncryption]); v.encryption != lvm.EncryptionNone && v.encryption != lvm.EncryptionLUKS2 {
		return volume{}, lvm.Errorf(lvm.KindInvalid, "volume %s: the volume attribute %s is %q; this version knows only %q", v.id, api.AttributeEncryption, v.encryption, lvm.EncryptionLUKS2)
	}
	return v, nil
}

func parseHandle(handle string) (lvm.ID, error) {
	id, err := lvm.ParseID(handle)
	if err != nil {
		return id, lvm.Errorf(lvm.KindNotFound, "there is no such volume: %w", err)
	}
	return id, nil
}

func parseCapability(c *csi.VolumeCapability) (volume, error) {
	v := volume{}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, // allows several pods: its meaning before CSI added the next two modes
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		v.onePod = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY: // several pods of this node
		v.readOnly = true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return v, lvm.Errorf(lvm.KindInvalid, "access mode %s is not possible: the volume is on one node's own disk", mode)
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return v, lvm.Errorf(lvm.KindInvalid, "the request has no volume_capability with an access mode")
	default:
		return v, lvm.Errorf(lvm.KindInvalid, "access mode %s is not known", mode)
	}
	if c.GetBlock() != nil {
		v.block = true
		return v, nil
	}
	if c.GetMount() == nil {
		return v, lvm.Errorf(lvm.KindInvalid, "the volume_capability has no access type; use mount or block")
	}
	v.fsType, v.flags = c.GetMount().GetFsType(), c.GetMount().GetMountFlags()
	if v.fsType == "" {
		v.fsType = filesystem.Types[0]
	}
	if err := filesystem.CheckOptions(v.fsType, ""); err != nil {
		return v, err
	}
	if err := mount.CheckOptions(v.fsType, v.flags); err != nil {
		return v, err
	}
	for _, option := range mount.SplitOptions(v.flags) { // the last of ro and rw counts
		v.mountReadOnly = option == "ro" || v.mountReadOnly && option != "rw"
	}
	v.readOnly = v.readOnly || v.mountReadOnly
	return v, nil
}

// parsePath refuses a path that is not absolute or that the kernel would not accept: the driver must mount and remove at
// exactly this path.
func parsePath(field, path string) (string, error) {
	const shown = 64
	tooLong := func(name string) bool { return len(name) > unix.NAME_MAX }
	switch {
	case path == "":
		return "", lvm.Errorf(lvm.KindInvalid, "the request has no %s", field)
	case len(path) >= unix.PathMax || slices.ContainsFunc(strings.Split(path, "/"), tooLong):
		return "", lvm.Errorf(lvm.KindInvalid, "%s has %d bytes and begins with %q; give a path of less than %d bytes, with names of at most %d",
			field, len(path), path[:min(len(path), shown)], unix.PathMax, unix.NAME_MAX)
	case strings.ContainsRune(path, 0):
		return "", lvm.Errorf(lvm.KindInvalid, "%s is %q; give a path without NUL bytes", field, path)
	case !filepath.IsAbs(path) || filepath.Clean(path) == "/":
		return "", lvm.Errorf(lvm.KindInvalid, "%s is %q; give an absolute path below /", field, path)
	}
	return filepath.Clean(path), nil
}
