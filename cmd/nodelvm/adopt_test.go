package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestKeySecret: the manifest of an encrypted volume names the Secret with its key.
func TestKeySecret(t *testing.T) {
	v := lvm.Volume{Group: "vg", ID: lvm.ID{LV: "data"}, Class: lvm.Class{Encryption: lvm.EncryptionLUKS2}}
	for given, want := range map[string]corev1.SecretReference{
		"keys/one": {Namespace: "keys", Name: "one"}, "${pvc.namespace}/${pvc.name}-key": {Namespace: "shop", Name: "data-key"},
	} {
		o := adoptOptions{key: given}
		if got, err := o.keySecret(v, "shop/data"); err != nil || *got != want {
			t.Errorf("%s: %v, %v", given, got, err)
		}
	}
	for _, given := range []string{"", "one", "/one", "keys/", "a/b/c", "Keys/one"} {
		o := adoptOptions{key: given}
		if got, err := o.keySecret(v, "shop/data"); err == nil {
			t.Errorf("%q: %v", given, got)
		}
	}
	o := adoptOptions{key: "${pvc.namespace}/${pvc.name}-key"}
	if got, err := o.keySecret(v, ""); err == nil {
		t.Errorf("a volume without a claim: %v", got)
	}
	if got, err := o.keySecret(lvm.Volume{}, ""); err != nil || got != nil {
		t.Errorf("without encryption: %v, %v", got, err)
	}
}
