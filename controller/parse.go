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
	errMissingSnapshot     = lvm.Errorf(lvm.KindInvalid, "the request has no snapshot_id")
	errMissingCapabilities = lvm.Errorf(lvm.KindInvalid, "the request has no volume_capabilities; say how the volume will be used")
	errMutableParameters   = lvm.Errorf(lvm.KindInvalid, "volumes of this driver have no mutable parameters; remove the claim's volumeAttributesClassName")
)

// parseCreate turns a request into the spec of the volume, and the options for its mkfs. It finds all errors of the request
// before the driver changes anything: lvm.KindInvalid, and lvm.KindOutOfRange for a size that is too small. Only package lvm knows
// the rules for layouts and for the volume group's name.
func (s *Server) parseCreate(req *csi.CreateVolumeRequest) (spec lvm.Spec, mkfs string, err error) {
	if err := checkName(req.GetName()); err != nil {
		return lvm.Spec{}, "", err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return lvm.Spec{}, "", errMissingCapabilities
	}
	fsType, err := s.checkCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return lvm.Spec{}, "", err
	}
	if len(req.GetMutableParameters()) > 0 {
		return lvm.Spec{}, "", errMutableParameters
	}
	spec.Name = req.GetName()
	if spec.Required, spec.Limit, err = parseSize(req.GetCapacityRange()); err != nil {
		return lvm.Spec{}, "", err
	}
	if err := s.checkMounts(req.GetVolumeCapabilities(), fsType, spec.Size(), "the claim asks for"); err != nil {
		return lvm.Spec{}, "", err
	}
	p, err := parseParameters(req.GetParameters())
	if err != nil {
		return lvm.Spec{}, "", err
	}
	if p.mkfs, err = s.mkfsOptions(fsType, p.mkfs); err != nil {
		return lvm.Spec{}, "", err
	}
	spec.Class, spec.Claim = p.class, p.claim
	// What an encrypted volume shows of its extents is decrypted with its own key: noise.
	spec.Block = p.class.Encryption == lvm.EncryptionNone && showsUnwritten(req.GetVolumeCapabilities(), p.mkfs)
	spec.Source, err = parseSource(req.GetVolumeContentSource())
	return spec, p.mkfs, err
}

// mkfsOptions holds the options against the file system that will be made; a raw device (no type) needs none.
func (s *Server) mkfsOptions(fsType, options string) (string, error) {
	if options == "" || fsType == "" {
		return "", nil
	}
	return options, s.checkFileSystem(fsType, options)
}

// parseVolume reads a volume's handle; lvm.KindNotFound for what cannot be one.
func parseVolume(handle string) (lvm.ID, error) {
	id, err := lvm.ParseID(handle)
	if err != nil {
		return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no such volume: %w", err)
	}
	return id, nil
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
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the required size is 0 bytes; ask for a positive size")
	case limit > 0 && required > limit:
		return 0, 0, lvm.Errorf(lvm.KindInvalid, "the required size of %d bytes is over the request's own limit of %d bytes", required, limit)
	}
	return required, limit, nil
}
