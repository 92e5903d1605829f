package controller

import (
	"cmp"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

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
