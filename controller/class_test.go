package controller

import (
	"testing"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestClassOfEncryptedVolumesNamesSecrets: CreateVolume does not see these parameters, so the class is checked.
func TestClassOfEncryptedVolumesNamesSecrets(t *testing.T) {
	class := map[string]string{"volumeGroup": "vg", "encryption": "luks2"}
	for _, key := range []string{
		api.ParameterStageSecretName, api.ParameterStageSecretNamespace, api.ParameterExpandSecretName, api.ParameterExpandSecretNamespace,
	} {
		_, err := ParseClass(class, checkFileSystem)
		expectKind(t, err, lvm.KindInvalid, key)
		class[key] = "x"
	}
	if parsed, err := ParseClass(class, checkFileSystem); err != nil || parsed.Encryption != lvm.EncryptionLUKS2 {
		t.Errorf("%+v, %v", parsed, err)
	}
	delete(class, "encryption")
	if _, err := ParseClass(class, checkFileSystem); err != nil {
		t.Errorf("without encryption: %v", err)
	}
}
