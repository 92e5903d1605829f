package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// node reads a Node object; nil: it does not exist.
func (c *Client) node(ctx context.Context, name string) (*corev1.Node, error) {
	var node corev1.Node
	there, err := get(ctx, c.core, "nodes", "", name, &node)
	if err != nil {
		return nil, fmt.Errorf("read node %s: %w", name, err)
	}
	if !there {
		return nil, nil
	}
	return &node, nil
}

// annotate changes annotations of a volume; if the volume has changed since it was read, the error is a conflict.
func (c *Client) annotate(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any) error {
	return c.change(ctx, pv, annotations, "")
}

// change is annotate with another reclaim policy; "": the policy stays.
func (c *Client) change(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy) error {
	body := map[string]any{"metadata": map[string]any{"resourceVersion": pv.ResourceVersion, "annotations": annotations}}
	if policy != "" {
		body["spec"] = map[string]any{"persistentVolumeReclaimPolicy": policy}
	}
	if err := c.patch(ctx, "persistentvolumes", "", pv.Name, "", body, &corev1.PersistentVolume{}); unlessNotFound(err) != nil {
		return fmt.Errorf("change PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// claim reads a claim; nil: it does not exist.
func (c *Client) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	var claim corev1.PersistentVolumeClaim
	there, err := get(ctx, c.core, "persistentvolumeclaims", namespace, name, &claim)
	if err != nil {
		return nil, fmt.Errorf("read claim %s/%s: %w", namespace, name, err)
	}
	if !there {
		return nil, nil
	}
	return &claim, nil
}

// volume reads a PersistentVolume; nil: it does not exist.
func (c *Client) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	var pv corev1.PersistentVolume
	there, err := get(ctx, c.core, "persistentvolumes", "", name, &pv)
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolume %s: %w", name, err)
	}
	if !there {
		return nil, nil
	}
	return &pv, nil
}

// patchClaim changes a claim; if the claim has changed since it was read, the error is a conflict, and the watch brings the
// new version. The subresource is "" or "status".
func (c *Client) patchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, subresource string, p patch) (*corev1.PersistentVolumeClaim, error) {
	metadata := map[string]any{"resourceVersion": claim.ResourceVersion}
	if len(p.annotations) > 0 {
		metadata["annotations"] = p.annotations
	}
	body := map[string]any{"metadata": metadata}
	if len(p.status) > 0 {
		body["status"] = p.status
	}
	var now corev1.PersistentVolumeClaim
	return &now, c.patch(ctx, "persistentvolumeclaims", claim.Namespace, claim.Name, subresource, body, &now)
}

func unlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// patch is a change of a claim; a nil value removes an entry.
type patch struct {
	annotations map[string]any
	status      map[string]any
}

func unlessConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// isReleased reports whether a volume's claim was deleted and no admin has bound the volume to another one.
func isReleased(pv *corev1.PersistentVolume) bool {
	return pv.Status.Phase == corev1.VolumeReleased || pv.Status.Phase == corev1.VolumeFailed
}

func keyOfObject(o any) (string, bool) {
	object, ok := o.(metav1.Object)
	if !ok {
		return "", false
	}
	if object.GetNamespace() != "" {
		return object.GetNamespace() + "/" + object.GetName(), true
	}
	return object.GetName(), true
}
