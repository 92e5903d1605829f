package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/test/cluster"
)

// CreateClaim creates a claim that names its node itself, so that it gets its volume without a pod. It has the label of WorkloadLabel.
func (env *Environment) CreateClaim(ctx context.Context, node, name, class, size string) error {
	return env.ApplyWith(ctx, "load-claim.yaml", "NAME", name, "CLASS", class, "SIZE", size, "NODE", node)
}

// Expand requests a new size of a claim that a pod uses, and waits until the claim has it, and its file system too.
func (env *Environment) Expand(ctx context.Context, claim, pod, size string) error {
	if err := env.RequestSize(ctx, claim, size); err != nil {
		return err
	}
	if err := cluster.Eventually(ctx, func() error {
		return env.CheckExpanded(ctx, claim, size, corev1.PersistentVolumeClaimNodeResizePending)
	}); err != nil {
		return err
	}
	// The kubelet processes a running pod's volumes once in a minute or two, and at once when the pod is changed.
	touch := fmt.Sprintf(`{"metadata":{"annotations":{"demo/claim-grown-to":%q}}}`, size)
	if _, err := env.Client.CoreV1().Pods(cluster.Namespace).Patch(ctx, pod, types.MergePatchType, []byte(touch), metav1.PatchOptions{}); err != nil {
		return err
	}
	return cluster.Eventually(ctx, func() error { return env.CheckExpanded(ctx, claim, size, "") })
}

// CheckExpanded fails until a claim has that size or, if one is named, its expansion that state.
func (env *Environment) CheckExpanded(ctx context.Context, name, size string, state corev1.ClaimResourceStatus) error {
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	has, is := claim.Status.Capacity[corev1.ResourceStorage], claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]
	if state != "" && is == state || has.Cmp(resource.MustParse(size)) == 0 && is == "" {
		return nil
	}
	return fmt.Errorf("claim %s has %s of %s (%q, %v)%s", name, has.String(), size, is, claim.Status.Conditions, env.LastEvents(ctx, name))
}

// CheckSizes fails unless claim, PersistentVolume and lvs say the same size.
func (env *Environment) CheckSizes(ctx context.Context, name, size string) error {
	claim, err := env.Claim(ctx, name)
	if err != nil {
		return err
	}
	pv, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	v, err := env.VolumeOf(ctx, name)
	if err != nil {
		return err
	}
	want := resource.MustParse(size)
	status := claim.Status.Capacity[corev1.ResourceStorage]
	if status.Cmp(want) != 0 || pv.Spec.Capacity.Storage().Cmp(want) != 0 || v.Size != strconv.FormatInt(want.Value(), 10) {
		return fmt.Errorf("want %s; claim %s has %s, its PersistentVolume %s, lvs on %s says %s bytes",
			size, name, status.String(), pv.Spec.Capacity.Storage(), v.Node, v.Size)
	}
	return nil
}

// BoundVolume is the PersistentVolume of a claim.
type BoundVolume struct {
	PV, Node string // their names
	Volume   *corev1.PersistentVolume
}

// BoundTo reads the PersistentVolume of a claim that is bound.
func (env *Environment) BoundTo(ctx context.Context, claim string) (BoundVolume, error) {
	pvc, err := env.Client.CoreV1().PersistentVolumeClaims(cluster.Namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return BoundVolume{}, err
	}
	pv, err := env.Client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return BoundVolume{}, err
	}
	node, err := cluster.AffinityNode(pv)
	return BoundVolume{PV: pv.Name, Node: node, Volume: pv}, err
}

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
