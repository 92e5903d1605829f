package node

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// volume is what every request to use a volume says.
type volume struct {
	id       lvm.ID
	uuid     string // the logical volume's own
	block    bool   // wanted as a raw device; else as a file system
	fsType   string
	flags    []string // mount options
	readOnly bool
	onePod   bool     // for one pod at a time
	copied   bool     // it began as a copy of a snapshot or of another volume
	mkfs     []string // further arguments of mkfs
}

// stageRequest is a parsed NodeStageVolumeRequest.
type stageRequest struct {
	volume
	staging string
}

// publishRequest is a parsed NodePublishVolumeRequest.
type publishRequest struct {
	volume
	staging, target string
}

// parseStage refuses (lvm.KindInvalid) whatever is missing or malformed; a handle that this driver cannot have made is
// lvm.KindNotFound.
func parseStage(req *csi.NodeStageVolumeRequest) (stageRequest, error) {
	if req.GetVolumeId() == "" {
		return stageRequest{}, errNoVolume
	}
	staging, err := parsePath("staging_target_path", req.GetStagingTargetPath())
	if err != nil {
		return stageRequest{}, err
	}
	v, err := parseVolume(req.GetVolumeId(), req.GetVolumeContext(), req.GetVolumeCapability())
	return stageRequest{v, staging}, err
}

// parsePublish is parseStage for NodePublishVolume.
func parsePublish(req *csi.NodePublishVolumeRequest) (publishRequest, error) {
	if req.GetVolumeId() == "" {
		return publishRequest{}, errNoVolume
	}
	target, err := parsePath("target_path", req.GetTargetPath())
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

var (
	errNoVolume = lvm.Errorf(lvm.KindInvalid, "the request names no volume_id")
	errNoPath   = lvm.Errorf(lvm.KindInvalid, "the request has no volume_path")
)

func parseVolume(handle string, attributes map[string]string, capability *csi.VolumeCapability) (volume, error) {
	v, err := parseCapability(capability)
	if err != nil {
		return volume{}, err
	}
	if v.id, err = parseHandle(handle); err != nil {
		return volume{}, err
	}
	if v.uuid = attributes[AttributeUUID]; v.uuid == "" {
		return volume{}, lvm.Errorf(lvm.KindInvalid, "volume %s: the volume attribute %s is missing; it must hold the logical volume's UUID (lvs -o lv_uuid)", v.id, AttributeUUID)
	}
	v.copied = attributes[AttributeSource] != ""
	if !v.block {
		v.mkfs, err = parseMkfs(v.fsType, attributes[AttributeMkfs])
	}
	return v, err
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
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, // several pods too: so it was before the next two were told apart
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		v.onePod = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		v.readOnly = true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
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
		return v, lvm.Errorf(lvm.KindInvalid, "the volume_capability has no access type; say mount or block")
	}
	v.fsType, v.flags = c.GetMount().GetFsType(), c.GetMount().GetMountFlags()
	if v.fsType == "" {
		v.fsType = fileSystems[0]
	}
	if err := CheckFileSystem(v.fsType, ""); err != nil {
		return v, err
	}
	for _, flag := range v.flags {
		for part := range strings.SplitSeq(flag, ",") { // mount(8) takes what is behind a comma for one more
			if slices.Contains([]string{"", "bind", "rbind", "remount", "move"}, part) {
				return v, lvm.Errorf(lvm.KindInvalid, "the mount option %q is not possible for a volume", flag)
			}
			v.readOnly = v.readOnly || part == "ro"
		}
	}
	return v, nil
}

// parsePath wants an absolute path as the kubelet writes it: what is mounted and removed there must be what was meant.
func parsePath(field, path string) (string, error) {
	switch {
	case path == "":
		return "", lvm.Errorf(lvm.KindInvalid, "the request has no %s", field)
	case !filepath.IsAbs(path) || filepath.Clean(path) == "/":
		return "", lvm.Errorf(lvm.KindInvalid, "%s is %q; give an absolute path below /", field, path)
	}
	return filepath.Clean(path), nil
}
