package controller

import (
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

// maxName is the longest name of a volume, in bytes (CSI spec, "Size Limits").
const maxName = 128

var (
	errMissingID           = lvm.Errorf(lvm.KindInvalid, "the request has no volume_id")
	errMissingCapabilities = lvm.Errorf(lvm.KindInvalid, "the request has no volume_capabilities; say how the volume will be used")
	errMutableParameters   = lvm.Errorf(lvm.KindInvalid, "volumes of this driver have no mutable parameters; remove the claim's volumeAttributesClassName")
)

// parseCreate turns a request into the wanted volume. Whatever is wrong with the request (lvm.KindInvalid) is found
// here, before anything is touched; only the volume group's name is left to lvm, which knows the rules for it.
func parseCreate(req *csi.CreateVolumeRequest) (lvm.Spec, error) {
	if err := checkName(req.GetName()); err != nil {
		return lvm.Spec{}, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return lvm.Spec{}, errMissingCapabilities
	}
	if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
		return lvm.Spec{}, err
	}
	if err := checkSource(req.GetVolumeContentSource()); err != nil {
		return lvm.Spec{}, err
	}
	if len(req.GetMutableParameters()) > 0 {
		return lvm.Spec{}, errMutableParameters
	}
	required, limit, err := parseSize(req.GetCapacityRange())
	if err != nil {
		return lvm.Spec{}, err
	}
	class, claim, err := parseParameters(req.GetParameters())
	if err != nil {
		return lvm.Spec{}, err
	}
	return lvm.Spec{Name: req.GetName(), Class: class, Required: required, Limit: limit, Claim: claim}, nil
}

// checkName holds a name to the spec's rules (CSI spec, "CreateVolumeRequest.name"). It is a key and never a path or
// an argument: any other character is welcome.
func checkName(name string) error {
	if name == "" {
		return lvm.Errorf(lvm.KindInvalid, "the request has no name")
	}
	if len(name) > maxName {
		return lvm.Errorf(lvm.KindInvalid, "the name %q is %d bytes long; at most %d are allowed", name, len(name), maxName)
	}
	if !utf8.ValidString(name) {
		return lvm.Errorf(lvm.KindInvalid, "the name %q is not valid UTF-8", name)
	}
	if at := strings.IndexFunc(name, isControl); at >= 0 {
		return lvm.Errorf(lvm.KindInvalid, "the name %q has a control character at byte %d", name, at)
	}
	return nil
}

// isControl tells the characters that the spec bans from names: controls other than tab, line feed and carriage return.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r <= 0x9f
}

// checkSource refuses a volume with content: an empty one in its place would be a lie.
func checkSource(source *csi.VolumeContentSource) error {
	switch {
	case source == nil:
		return nil
	case source.GetSnapshot() != nil:
		return lvm.Errorf(lvm.KindInvalid, "a volume from snapshot %q was asked for, and this version of nodelvm has no snapshots; "+
			"create an empty volume and restore into it", source.GetSnapshot().GetSnapshotId())
	case source.GetVolume() != nil:
		return lvm.Errorf(lvm.KindInvalid, "a clone of volume %q was asked for, and this version of nodelvm has no clones; "+
			"create an empty volume and copy into it", source.GetVolume().GetVolumeId())
	}
	return lvm.Errorf(lvm.KindInvalid, "a volume with content of an unknown kind was asked for; this version of nodelvm creates empty volumes only")
}

// parseSize reads the wanted size in bytes. No range at all asks for the default size, 0 and 0; a limit of 0 is none.
func parseSize(size *csi.CapacityRange) (required, limit lvm.Bytes, err error) {
	if size == nil {
		return 0, 0, nil
	}
	required, limit = lvm.Bytes(size.GetRequiredBytes()), lvm.Bytes(size.GetLimitBytes())
	switch {
	case required < 0:
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the required size is %d bytes; it must be positive", required)
	case limit < 0:
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the size limit is %d bytes; it must be positive, or 0 for none", limit)
	case required == 0 && limit == 0:
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the required size is 0 bytes; ask for a positive size, or leave capacity_range out for the default of %s", lvm.DefaultSize)
	case limit > 0 && required > limit:
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the required size of %d bytes is over the request's own limit of %d bytes", required, limit)
	}
	return required, limit, nil
}
