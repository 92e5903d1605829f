package main

import (
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const secretPrefix = "csi.storage.k8s.io/node-"

// encryptedParameters are those of a class with encryption, whose Secrets have this name and namespace.
func encryptedParameters(name, namespace string) map[string]string {
	return map[string]string{"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "xfs", "encryption": "luks2",
		secretPrefix + "stage-secret-name": name, secretPrefix + "stage-secret-namespace": namespace,
		secretPrefix + "expand-secret-name": name, secretPrefix + "expand-secret-namespace": namespace}
}

// encrypted is node-1's encrypted volume of the class, with the Secrets of this name and namespace.
func encrypted(class, name, namespace string, change ...func(*core.CSIPersistentVolumeSource)) *core.PersistentVolume {
	return but(func(pv *core.PersistentVolume) {
		pv.Spec.StorageClassName = class
		csi := pv.Spec.CSI
		csi.VolumeAttributes["nodelvm.io/encryption"] = "luks2"
		csi.NodeStageSecretRef = &core.SecretReference{Name: name, Namespace: namespace}
		csi.NodeExpandSecretRef = &core.SecretReference{Name: name, Namespace: namespace}
		for _, f := range change {
			f(csi)
		}
	})
}

// ofClaim has the volume name this claim, with a UID that it does not have.
func ofClaim(namespace, name string, pv *core.PersistentVolume) *core.PersistentVolume {
	pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name = namespace, name
	return pv
}

// TestKeysOfEncryptedVolumes: a node creates volumes that refer to Secrets only of the classes that the chart names, and only for
// staging and expansion.
func TestKeysOfEncryptedVolumes(t *testing.T) {
	parameters := map[string]any{}
	for key, value := range encryptedParameters("${pvc.name}-key", "${pvc.namespace}") {
		parameters[key] = value
	}
	docs := renderWith(t, map[string]any{
		"nodeRestriction": map[string]any{"enabled": true, "encryptedClasses": []any{"by-hand"}},
		"storageClasses": []any{map[string]any{"name": "secret", "parameters": parameters},
			map[string]any{"name": "local", "parameters": map[string]any{"volumeGroup": "vg"}}},
	})
	other := &core.SecretReference{Name: "root", Namespace: "kube-system"}
	const refused = "no volume that refers to a Secret"
	expectAnswers(t, policyIn(t, docs, "nodelvm-node-restriction"), []request{
		{name: "of the chart's class", now: encrypted("secret", "data-key", "demo")},
		{name: "of a class that was made by hand", now: encrypted("by-hand", "data-key", "demo")},
		{name: "of a claim with another UID", now: ofClaim("bank", "app", encrypted("secret", "app-key", "bank"))},
		{name: "without a Secret", now: volume("node-1")},
		{name: "of another class", now: encrypted("local", "data-key", "demo"), refused: refused},
		{name: "of a class that does not exist", now: encrypted("unknown", "root", "kube-system"), refused: refused},
		{name: "for publishing", now: encrypted("secret", "data-key", "demo", func(c *core.CSIPersistentVolumeSource) { c.NodePublishSecretRef = other }), refused: refused},
		{name: "for the controller", now: encrypted("secret", "data-key", "demo", func(c *core.CSIPersistentVolumeSource) { c.ControllerExpandSecretRef = other }), refused: refused},
		{name: "added later", before: volume("node-1"), now: encrypted("secret", "data-key", "demo"), refused: mayOnly},
	})
}

// TestSecretsAreThoseOfTheClass: the references of a volume are exactly what csi-provisioner makes of the class's parameters.
func TestSecretsAreThoseOfTheClass(t *testing.T) {
	const differs = "are those of its storage class secret"
	plain := map[string]string{"volumeGroup": "vg", "csi.storage.k8s.io/fstype": "xfs"}
	noSecrets := func(c *core.CSIPersistentVolumeSource) { c.NodeStageSecretRef, c.NodeExpandSecretRef = nil, nil }
	noStage := encryptedParameters("key", "keys")
	delete(noStage, secretPrefix+"stage-secret-name")
	delete(noStage, secretPrefix+"stage-secret-namespace")
	class := func(parameters map[string]string) *storage.StorageClass {
		return &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: "secret"}, Provisioner: "nodelvm.io", MountOptions: []string{"noatime"}, Parameters: parameters}
	}
	expectAnswers(t, shippedPolicy(t, "nodelvm-volume-class"), []request{
		{name: "one for each claim", params: class(encryptedParameters("${pvc.name}-key", "${pvc.namespace}")), now: encrypted("secret", "data-key", "demo")},
		{name: "one for each volume", params: class(encryptedParameters("key-${pv.name}", "keys")), now: encrypted("secret", "key-"+volumeName, "keys")},
		{name: "one for each namespace", params: class(encryptedParameters("disk-key", "${pvc.namespace}")), now: encrypted("secret", "disk-key", "demo")},
		{name: "one for the class", params: class(encryptedParameters("key", "keys")), now: encrypted("secret", "key", "keys")},
		{name: "only for expansion", params: class(noStage), now: encrypted("secret", "key", "keys", func(c *core.CSIPersistentVolumeSource) { c.NodeStageSecretRef = nil })},
		// Kubernetes then lets this node's kubelet read it, if a pod of the node uses that claim (docs/explanation/security.md).
		{name: "that of a claim with another UID", params: class(encryptedParameters("${pvc.name}-key", "${pvc.namespace}")), now: ofClaim("bank", "app", encrypted("secret", "app-key", "bank"))},
		{name: "that of a whole namespace, by such a claim", params: class(encryptedParameters("disk-key", "${pvc.namespace}")), now: ofClaim("bank", "app", encrypted("secret", "disk-key", "bank"))},
		{name: "another volume's, by such a claim", params: class(encryptedParameters("key-${pv.name}", "${pvc.namespace}")), now: ofClaim("bank", "app", encrypted("secret", "key-pvc-of-another", "bank")), refused: differs},
		{name: "another name", params: class(encryptedParameters("${pvc.name}-key", "${pvc.namespace}")), now: encrypted("secret", "root", "demo"), refused: differs},
		{name: "another claim's", params: class(encryptedParameters("${pvc.name}-key", "${pvc.namespace}")), now: encrypted("secret", "other-key", "demo"), refused: differs},
		{name: "another namespace", params: class(encryptedParameters("${pvc.name}-key", "${pvc.namespace}")), now: encrypted("secret", "data-key", "kube-system"), refused: differs},
		{name: "another one for expansion", params: class(encryptedParameters("key", "keys")), now: encrypted("secret", "key", "keys", func(c *core.CSIPersistentVolumeSource) {
			c.NodeExpandSecretRef.Name = "root"
		}), refused: differs},
		{name: "the template itself", params: class(encryptedParameters("${pvc.annotations['key']}", "keys")), now: encrypted("secret", "root", "keys"), refused: differs},
		{name: "none", params: class(encryptedParameters("key", "keys")), now: encrypted("secret", "", "", noSecrets), refused: differs},
		{name: "a class without encryption", params: class(plain), now: encrypted("secret", "key", "keys"), refused: differs},
		{name: "a Secret without encryption", params: class(plain), now: encrypted("secret", "key", "keys", func(c *core.CSIPersistentVolumeSource) { delete(c.VolumeAttributes, "nodelvm.io/encryption") }), refused: differs},
		{name: "the class's Secrets without encryption", params: class(encryptedParameters("key", "keys")), now: encrypted("secret", "key", "keys", func(c *core.CSIPersistentVolumeSource) {
			delete(c.VolumeAttributes, "nodelvm.io/encryption")
		}), refused: differs},
		{name: "no encryption, and no Secret", params: class(plain), now: encrypted("secret", "", "", noSecrets, func(c *core.CSIPersistentVolumeSource) { delete(c.VolumeAttributes, "nodelvm.io/encryption") })},
	})
}
