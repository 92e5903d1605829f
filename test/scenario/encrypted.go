package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// ReplaceKeySecret creates or replaces the Secret with the key of an encrypted claim.
func (env *Environment) ReplaceKeySecret(ctx context.Context, name string, fields map[string]string) error {
	secrets := env.Client.CoreV1().Secrets(cluster.Namespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: fields}
	err := secrets.Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// MappingOf returns the name of the device-mapper mapping of an encrypted claim, as the driver derives it from the volume handle.
func (env *Environment) MappingOf(ctx context.Context, claim string) (string, error) {
	pvc, err := env.Claim(ctx, claim)
	if err != nil {
		return "", err
	}
	pv, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(pv.Spec.CSI.VolumeHandle))
	return "nodelvm-luks-" + hex.EncodeToString(sum[:16]), nil
}
