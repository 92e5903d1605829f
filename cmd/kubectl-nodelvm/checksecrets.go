package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// maxSecrets is the number of Secrets that doctor reads at most: each is a request.
const maxSecrets = 200

// keyFault is what is wrong with the Secret of encrypted volumes.
type keyFault struct {
	secret string // namespace/name
	claim  string // of one volume that needs it
	what   string
	fix    string
}

// readKeySecrets reads the Secrets that encrypted volumes refer to, with the user's rights, and keeps what is wrong with them, but nothing that is in
// them. Those of pods that do not run come first. It needs f.volumes and f.pods.
func (c *cluster) readKeySecrets(ctx context.Context, f *facts) error {
	refs := keySecretsOf(f)
	var unread error
	for i, ref := range refs {
		if i == maxSecrets {
			return fmt.Errorf("only %d of %d were read", maxSecrets, len(refs))
		}
		var secret corev1.Secret
		err := c.api.Get().Namespace(ref.namespace).Resource("secrets").Name(ref.name).Do(ctx).Into(&secret)
		switch {
		case apierrors.IsNotFound(err):
			f.keyFaults = append(f.keyFaults, keyFault{ref.String(), ref.claim, "it does not exist", "create it with the volume's key: the pods of the volume start when it is there"})
		case err != nil: // perhaps forbidden in this namespace alone
			unread = err
		default:
			if what, fix := faultOfKey(secret.Data); what != "" {
				f.keyFaults = append(f.keyFaults, keyFault{ref.String(), ref.claim, what, fix})
			}
		}
	}
	return unread
}

// keyRef is a volume's reference to a Secret.
type keyRef struct{ namespace, name, claim string }

func (r keyRef) String() string { return r.namespace + "/" + r.name }

// keySecretsOf returns each Secret once.
func keySecretsOf(f *facts) []keyRef {
	starting := map[string]bool{}
	for claim := range usersOf(slices.DeleteFunc(slices.Clone(f.pods), func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })) {
		starting[claim] = true
	}
	var first, others []keyRef
	seen := map[string]bool{}
	add := func(ref *corev1.SecretReference, claim string) {
		if ref == nil || seen[ref.Namespace+"/"+ref.Name] {
			return
		}
		seen[ref.Namespace+"/"+ref.Name] = true
		if r := (keyRef{ref.Namespace, ref.Name, claim}); starting[claim] {
			first = append(first, r)
		} else {
			others = append(others, r)
		}
	}
	for _, pv := range f.volumes {
		if pv.Status.Phase == corev1.VolumeBound && pv.Spec.CSI.VolumeAttributes[api.AttributeEncryption] != "" {
			add(pv.Spec.CSI.NodeStageSecretRef, claimOf(&pv))
			add(pv.Spec.CSI.NodeExpandSecretRef, claimOf(&pv))
		}
	}
	return append(first, others...)
}

// faultOfKey returns what prevents the kubelet from passing a Secret to the driver, or the driver from using it; "": nothing that the fields show.
func faultOfKey(data map[string][]byte) (what, fix string) {
	key, passphrase := len(data[lvm.SecretKey]) > 0, len(data[lvm.SecretPassphrase]) > 0
	for _, field := range slices.Sorted(maps.Keys(data)) {
		if !utf8.Valid(data[field]) {
			return fmt.Sprintf("its field %q is not text (UTF-8), so the kubelet cannot pass the Secret to the driver", field),
				"no volume has a key that is not text: put the volume's key into it or, for a new volume, a new one from `head -c 32 /dev/urandom | base64`"
		}
	}
	switch {
	case key && passphrase:
		return fmt.Sprintf("it has both %q and %q", lvm.SecretKey, lvm.SecretPassphrase), "keep the one that the volume was formatted with"
	case !key && !passphrase:
		return fmt.Sprintf("it has neither the field %q nor %q", lvm.SecretKey, lvm.SecretPassphrase), "put the volume's key into one of them"
	}
	return "", ""
}

// checkKeySecrets reports the Secrets with which encrypted volumes do not open.
func checkKeySecrets(f *facts, found func(where, what, fix string)) {
	for _, fault := range f.keyFaults {
		found("Secret "+fault.secret, fmt.Sprintf("the encrypted volume of claim %s needs its key, and %s", fault.claim, fault.what), fault.fix)
	}
}
