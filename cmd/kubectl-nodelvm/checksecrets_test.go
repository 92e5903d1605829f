package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
)

func TestFaultOfKey(t *testing.T) {
	binary := []byte(strings.Repeat("\xff\xfe", 16))
	for name, test := range map[string]struct {
		data map[string][]byte
		says string
	}{
		"base64":                {map[string][]byte{"key": []byte("kk7t3Yz0wqv4QyV1pJm0kq8m2k0c8f2vJmVgqf9kzqE=\n")}, ""},
		"a passphrase":          {map[string][]byte{"passphrase": []byte("größer als 8")}, ""},
		"bytes":                 {map[string][]byte{"key": binary}, `its field "key" is not text (UTF-8), so the kubelet cannot pass the Secret`},
		"bytes in another":      {map[string][]byte{"key": []byte("text"), "tls.p12": binary}, `its field "tls.p12" is not text`},
		"another field":         {map[string][]byte{"password": []byte("text")}, `neither the field "key" nor "passphrase"`},
		"empty":                 {map[string][]byte{"key": {}}, "neither"},
		"both":                  {map[string][]byte{"key": []byte("text"), "passphrase": []byte("text")}, "both"},
		"bytes in previousKey ": {map[string][]byte{"key": []byte("text"), "previousKey": binary}, `"previousKey" is not text`},
	} {
		what, fix := faultOfKey(test.data)
		if (what == "") != (test.says == "") || (what == "") != (fix == "") || !strings.Contains(what, test.says) || strings.Contains(what+fix, string(binary)) {
			t.Errorf("%s: %q, %q, want %q", name, what, fix, test.says)
		}
	}
}

// encryptedVolume returns a bound volume whose key is in NAMESPACE/CLAIM-key.
func encryptedVolume(n int, namespace, claim string) corev1.PersistentVolume {
	pv := volume(fmt.Sprintf("pvc-%d", n), "node-1", vg1, "shop/"+claim, "1Gi")
	pv.Spec.ClaimRef.Namespace = namespace
	pv.Spec.CSI.VolumeAttributes = map[string]string{api.AttributeEncryption: "luks2"}
	pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: namespace, Name: claim + "-key"}
	pv.Spec.CSI.NodeExpandSecretRef = pv.Spec.CSI.NodeStageSecretRef
	return pv
}

// TestKeySecrets: doctor reads each Secret once, reports those that do not work, and says what it may not read.
func TestKeySecrets(t *testing.T) {
	secret := func(key string) corev1.Secret {
		return corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"key": []byte(key)}}
	}
	c, asked := apiServer(t, map[string]any{"/api/v1/namespaces/shop/secrets/good-key": secret("0123456789abcdefghijklmnopqrstuvwxyz"),
		"/api/v1/namespaces/shop/secrets/bytes-key": secret("\xff"), "/api/v1/namespaces/shop/secrets/absent-key": nil})
	f := sound()
	f.volumes = nil
	for i, claim := range []string{"good", "bytes", "absent"} {
		f.volumes = append(f.volumes, encryptedVolume(i, "shop", claim))
	}
	f.volumes = append(f.volumes, encryptedVolume(9, "closed", "other"), volume("pvc-10", "node-1", vg1, "shop/plain", "1Gi"))
	err := c.readKeySecrets(t.Context(), f)
	if err == nil || len(asked()) != 4 {
		t.Errorf("%v, asked %q", err, asked())
	}
	if len(f.keyFaults) != 2 || f.keyFaults[0].secret != "shop/bytes-key" || f.keyFaults[1].secret != "shop/absent-key" || !strings.Contains(f.keyFaults[1].what, "does not exist") {
		t.Errorf("%+v", f.keyFaults)
	}
}

// TestKeySecretsAreBounded: of many Secrets doctor reads those of starting pods first, and says that it did not read all.
func TestKeySecretsAreBounded(t *testing.T) {
	secrets := map[string]any{}
	c, asked := apiServer(t, secrets)
	f := &facts{}
	for i := range maxSecrets + 1 {
		secrets[fmt.Sprintf("/api/v1/namespaces/shop/secrets/c%d-key", i)] = nil
		f.volumes = append(f.volumes, encryptedVolume(i, "shop", fmt.Sprintf("c%d", i)))
	}
	last := fmt.Sprintf("c%d", maxSecrets)
	f.pods = []corev1.Pod{unscheduled(last, "db")}
	err := c.readKeySecrets(t.Context(), f)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("only %d of %d", maxSecrets, maxSecrets+1)) || len(asked()) != maxSecrets {
		t.Errorf("%d requests, %v", len(asked()), err)
	}
	if len(f.keyFaults) == 0 || f.keyFaults[0].secret != "shop/"+last+"-key" {
		t.Errorf("first %+v", f.keyFaults[:1])
	}
}
