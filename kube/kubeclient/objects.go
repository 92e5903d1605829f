package kubeclient

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Node reads a Node object; nil: it does not exist.
func (c *Client) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return Read[corev1.Node](ctx, c.Core, "node", "nodes", "", name)
}

// CSINode reads what the kubelet of a node has registered; nil: it does not exist.
func (c *Client) CSINode(ctx context.Context, name string) (*storagev1.CSINode, error) {
	return Read[storagev1.CSINode](ctx, c.Storage, "CSINode", "csinodes", "", name)
}

// Annotate changes annotations of a volume; if the volume has changed since it was read, the error is a conflict.
func (c *Client) Annotate(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any) error {
	return c.Change(ctx, pv, annotations, "")
}

// Change is Annotate, and also sets the reclaim policy; "": the policy stays.
func (c *Client) Change(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy) error {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "annotations": annotations}}
	if policy != "" {
		body["spec"] = map[string]any{"persistentVolumeReclaimPolicy": policy}
	}
	if err := c.Patch(ctx, "persistentvolumes", "", pv.Name, "", body, &corev1.PersistentVolume{}); UnlessNotFound(err) != nil {
		return fmt.Errorf("change PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// Claim reads a claim; nil: it does not exist.
func (c *Client) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return Read[corev1.PersistentVolumeClaim](ctx, c.Core, "claim", "persistentvolumeclaims", namespace, name)
}

// Volume reads a PersistentVolume; nil: it does not exist.
func (c *Client) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return Read[corev1.PersistentVolume](ctx, c.Core, "PersistentVolume", "persistentvolumes", "", name)
}

// Class reads a StorageClass; nil: it does not exist.
func (c *Client) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	return Read[storagev1.StorageClass](ctx, c.Storage, "StorageClass", "storageclasses", "", name)
}

// PatchClaim changes a claim; if the claim has changed since it was read, the error is a conflict, and the watch brings the
// new version. The subresource is "" or "status".
func (c *Client) PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, subresource string, p Patch) (*corev1.PersistentVolumeClaim, error) {
	metadata := map[string]any{"resourceVersion": claim.ResourceVersion}
	if len(p.Annotations) > 0 {
		metadata["annotations"] = p.Annotations
	}
	body := map[string]any{"metadata": metadata}
	if len(p.Status) > 0 {
		body["status"] = p.Status
	}
	var now corev1.PersistentVolumeClaim
	return &now, c.Patch(ctx, "persistentvolumeclaims", claim.Namespace, claim.Name, subresource, body, &now)
}

func UnlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Patch is a change of a claim; a nil value removes an entry.
type Patch struct {
	Annotations map[string]any
	Status      map[string]any
}

func UnlessConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// IsReleased reports whether a volume's claim was deleted and no admin has bound the volume to another one.
func IsReleased(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
}

func KeyOfObject(o any) (string, bool) {
	object, ok := o.(metav1.Object)
	if !ok {
		return "", false
	}
	if object.GetNamespace() != "" {
		return object.GetNamespace() + "/" + object.GetName(), true
	}
	return object.GetName(), true
}
