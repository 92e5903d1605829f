package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

func TestManifests(t *testing.T) {
	a := Adoption{
		Volume: lvm.Volume{
			ID: lvm.ID{VG: "abcdef-abcd-abcd-abcd-abcd-abcd-abcdef", LV: "data"}, Name: "vg-data", Size: lvm.GiB,
		},
		Attributes: map[string]string{"nodelvm.io/lv-uuid": "u"}, Node: "node-1", Claim: "shop/data", Class: "local", FSType: "xfs",
		Policy: corev1.PersistentVolumeReclaimRetain,
	}
	text, err := Manifests(a)
	must(t, err)
	docs := strings.Split(strings.TrimPrefix(text, "---\n"), "---\n")
	if len(docs) != 2 || strings.Contains(text, "status") || strings.Contains(text, "creationTimestamp") {
		t.Fatalf("it printed\n%s", text)
	}
	var pv corev1.PersistentVolume
	var claim corev1.PersistentVolumeClaim
	must(t, yaml.UnmarshalStrict([]byte(docs[0]), &pv))
	must(t, yaml.UnmarshalStrict([]byte(docs[1]), &claim))
	if pending.NodeOf(&pv) != "node-1" || pv.Name != "vg-data" || pv.Spec.CSI.VolumeHandle != a.Volume.ID.String() || pv.Spec.CSI.FSType != "xfs" ||
		pv.Spec.ClaimRef.Name != "data" || pv.Spec.ClaimRef.UID != "" || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain ||
		pv.Spec.Capacity.Storage().String() != "1Gi" || pv.Spec.CSI.NodeStageSecretRef != nil {
		t.Errorf("the volume is\n%s", docs[0])
	}
	encrypted := a
	encrypted.Claim, encrypted.Key = "", &corev1.SecretReference{Namespace: "shop", Name: "data-key"}
	if text, err := Manifests(encrypted); err != nil || yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "---\n")), &pv) != nil ||
		*pv.Spec.CSI.NodeStageSecretRef != *encrypted.Key || *pv.Spec.CSI.NodeExpandSecretRef != *encrypted.Key {
		t.Errorf("an encrypted volume is\n%s%v", text, err)
	}
	readOnly := a
	readOnly.Claim, readOnly.Volume.Access = "", lvm.AccessReadOnly
	if text, err := Manifests(readOnly); err != nil || yaml.UnmarshalStrict([]byte(strings.TrimPrefix(text, "---\n")), &pv) != nil ||
		len(pv.Spec.AccessModes) != 1 || pv.Spec.AccessModes[0] != corev1.ReadOnlyMany {
		t.Errorf("a read-only copy is\n%s%v", text, err)
	}
	if claim.Namespace != "shop" || claim.Spec.VolumeName != "vg-data" || *claim.Spec.StorageClassName != "local" ||
		claim.Spec.Resources.Requests.Storage().String() != "1Gi" || claim.Annotations[api.AnnotationSelectedNode] != "node-1" {
		t.Errorf("the claim is\n%s", docs[1])
	}
	for _, bad := range []string{"data", "/data", "shop/", "a/b/c"} {
		a.Claim = bad
		if text, err := Manifests(a); err == nil {
			t.Errorf("claim %q: it printed\n%s", bad, text)
		}
	}
}
