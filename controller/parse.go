package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// maxName is the longest name of a volume, in bytes (CSI spec, "Size Limits").
const maxName = 128

var (
	errMissingID           = lvm.Errorf(lvm.KindInvalid, "the request has no volume_id")
	errMissingSnapshot     = lvm.Errorf(lvm.KindInvalid, "the request has no snapshot_id")
	errMissingCapabilities = lvm.Errorf(lvm.KindInvalid, "the request has no volume_capabilities; say how the volume will be used")
	errMutableParameters   = lvm.Errorf(lvm.KindInvalid, "this driver runs without I/O limits, so its volumes have no mutable parameters; remove the claim's volumeAttributesClassName, or enable I/O limits (chart value ioLimits.enabled)")
	errNoMutableParameters = lvm.Errorf(lvm.KindInvalid, "the request has no mutable_parameters; known are %s", strings.Join(lvm.LimitParameters(), ", "))
)

// parseCreate translates a request into the spec of the volume and the options for its mkfs. It finds all errors of the request
// before the driver changes anything: lvm.KindInvalid, and lvm.KindOutOfRange for a size that is too small. Only package lvm
// knows the rules for layouts and for the volume group's name.
func (s *Server) parseCreate(req *csi.CreateVolumeRequest) (spec lvm.Spec, mkfs string, err error) {
	if err := checkName(req.GetName()); err != nil {
		return lvm.Spec{}, "", err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return lvm.Spec{}, "", errMissingCapabilities
	}
	use, err := s.parseCapabilities(req.GetVolumeCapabilities())
	if err != nil {
		return lvm.Spec{}, "", err
	}
	spec = lvm.Spec{Name: req.GetName(), Claim: claimOf(req.GetParameters())}
	if len(req.GetMutableParameters()) > 0 {
		if spec.Limits, err = s.parseMutable(req.GetMutableParameters()); err != nil {
			return lvm.Spec{}, "", err
		}
	}
	if spec.Required, spec.Limit, err = parseSize(req.GetCapacityRange()); err != nil {
		return lvm.Spec{}, "", err
	}
	if spec, mkfs, err = s.withClass(spec, use, req.GetParameters()); err != nil {
		return lvm.Spec{}, "", err
	}
	if spec.Source, err = parseSource(req.GetVolumeContentSource()); err != nil {
		return lvm.Spec{}, "", err
	}
	switch {
	case spec.Source != lvm.ID{}:
		spec.Access = use.access()
	case use.readOnlyMany:
		return lvm.Spec{}, "", errEmptyReadOnlyMany
	}
	return spec, mkfs, nil
}

// withClass adds to a spec what the parameters of the StorageClass and the volume's use determine.
func (s *Server) withClass(spec lvm.Spec, use usage, values map[string]string) (_ lvm.Spec, mkfs string, err error) {
	if err := s.checkMounts(use, spec.Size(), "the claim asks for"); err != nil {
		return lvm.Spec{}, "", err
	}
	p, err := parseParameters(values)
	if err != nil {
		return lvm.Spec{}, "", err
	}
	if mkfs, err = s.mkfsOptions(use.fsType, p.mkfs); err != nil {
		return lvm.Spec{}, "", err
	}
	if p.anywhere && s.fullCopies == nil {
		return lvm.Spec{}, "", errNoFullCopies
	}
	spec.Class = p.class
	// The unwritten extents of an encrypted volume read as noise: they are decrypted with the volume's own key.
	spec.Block = p.class.Encryption == lvm.EncryptionNone && showsUnwritten(use, mkfs)
	return spec, mkfs, nil
}

// mkfsOptions checks the options for the file system that the driver will create; a raw device (no type) needs none.
func (s *Server) mkfsOptions(fsType, options string) (string, error) {
	if options == "" || fsType == "" {
		return "", nil
	}
	return options, s.checkFileSystem(fsType, options)
}

// parseVolume parses a volume's handle. lvm.KindNotFound: no volume can have it.
func parseVolume(handle string) (lvm.ID, error) {
	id, err := lvm.ParseID(handle)
	if err != nil {
		return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no such volume: %w", err)
	}
	return id, nil
}

// checkName checks a name by the rules of the CSI spec ("CreateVolumeRequest.name"). The driver uses the name as a key, never
// as a path or an argument, so every character that the spec allows is safe.
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

// isControl reports whether the spec bans a character from names: controls other than tab, line feed and carriage return.
func isControl(r rune) bool {
	return r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r >= 0x7f && r <= 0x9f
}

// parseSize returns the requested size in bytes. Without a range it returns 0 and 0, the default size; a limit of 0 is none.
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

// parameters are the parsed parameters of a StorageClass.
type parameters struct {
	class    lvm.Class // absent parameters are zero, except the layout; package lvm has the defaults
	mkfs     string    // not yet checked: the file system determines which options are allowed
	anywhere bool      // restoreOnOtherNodes
}

// parseParameters parses the parameters of a StorageClass. lvm.KindInvalid: an unknown key or value, so that the user learns of
// a typo. Package lvm checks which parameters a layout has.
func parseParameters(values map[string]string) (parameters, error) {
	p := parameters{class: lvm.Class{Layout: lvm.LayoutLinear}, mkfs: values[api.ParameterMkfsOptions]}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		known, is := lvm.FindParameter(key)
		switch {
		case is:
			if err := known.Parse(&p.class, values[key]); err != nil {
				return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass' parameter %s is %q; %w", key, values[key], err)
			}
		case !strings.HasPrefix(key, api.ParameterPrefix):
			return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass has the unknown parameter %q%s; known are %s",
				key, lvm.DidYouMean(key), strings.Join(slices.Sorted(slices.Values(lvm.ParameterNames())), ", "))
		}
	}
	if p.anywhere = values[api.ParameterRestoreOnOtherNodes] == "true"; p.anywhere && p.class.Layout != lvm.LayoutThin {
		return parameters{}, errThinAlone
	}
	if p.class.Group == "" {
		return parameters{}, lvm.Errorf(lvm.KindInvalid, "the StorageClass does not name a volume group; "+
			"set the parameter %s to a volume group's name, or to \"@tag\" for any group with that LVM tag", api.ParameterVolumeGroup)
	}
	return p, nil
}

// claimOf returns the volume's claim, if the provisioner passes it (--extra-create-metadata).
func claimOf(values map[string]string) string {
	namespace, name := values[api.ParameterClaimNamespace], values[api.ParameterClaimName]
	if namespace == "" || name == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s", namespace, name)
}

// parseSource returns the source of a volume; the zero ID for an empty volume. lvm.KindNotFound: the handle is none that this
// driver can have given to a snapshot or a volume.
func parseSource(source *csi.VolumeContentSource) (lvm.ID, error) {
	switch {
	case source == nil:
		return lvm.ID{}, nil
	case source.GetSnapshot() != nil:
		return parseSnapshot(source.GetSnapshot().GetSnapshotId())
	case source.GetVolume() != nil:
		id, err := lvm.ParseID(source.GetVolume().GetVolumeId())
		if err != nil || id.IsSnapshot() {
			return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no volume %q to clone; no volume of this driver has such a handle", source.GetVolume().GetVolumeId())
		}
		return id, nil
	}
	return lvm.ID{}, lvm.Errorf(lvm.KindInvalid, "the request has a volume_content_source of an unknown kind; it can be a snapshot or a volume")
}

// parseSnapshot parses a snapshot's handle. lvm.KindNotFound: no snapshot can have it.
func parseSnapshot(handle string) (lvm.ID, error) {
	id, err := lvm.ParseID(handle)
	if err != nil || !id.IsSnapshot() {
		return lvm.ID{}, lvm.Errorf(lvm.KindNotFound, "there is no snapshot %q; no snapshot of this driver has such a handle", handle)
	}
	return id, nil
}

// ParseClass parses the parameters of a StorageClass object as CreateVolume does; checkFileSystem is as in Config.
// lvm.KindInvalid: no node can ever create a volume with them.
func ParseClass(parameters map[string]string, checkFileSystem func(fsType, mkfsOptions string) error) (lvm.Class, error) {
	p, err := parseParameters(parameters)
	if err == nil {
		err = checkSecrets(p.class, parameters)
	}
	if err == nil {
		err = checkFileSystem(cmp.Or(parameters[api.ParameterFSType], api.DefaultFSType), p.mkfs)
	}
	return p.class, err
}

// checkSecrets checks that the class of encrypted volumes names the Secrets with their keys. csi-provisioner does not pass
// these parameters to CreateVolume.
func checkSecrets(class lvm.Class, parameters map[string]string) error {
	if class.Encryption == lvm.EncryptionNone {
		return nil
	}
	for _, needed := range []struct{ key, without string }{
		{api.ParameterStageSecretName, "no volume of the class can be used"}, {api.ParameterStageSecretNamespace, "no volume of the class can be used"},
		{api.ParameterExpandSecretName, "its volumes cannot be expanded while they are in use"}, {api.ParameterExpandSecretNamespace, "its volumes cannot be expanded while they are in use"},
	} {
		if parameters[needed.key] == "" {
			return lvm.Errorf(lvm.KindInvalid, "the StorageClass asks for %s: %s, and lacks the parameter %s: without it the kubelet passes no key to the driver, and %s (docs/howto/encryption.md)",
				api.ParameterEncryption, class.Encryption, needed.key, needed.without)
		}
	}
	return nil
}
