package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

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

// remove deletes an object if it has not changed since it was read. grace is in seconds; nil: the object's own.
func remove(ctx context.Context, client rest.Interface, resource string, o metav1.Object, grace *int64) error {
	options := &metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{
		UID: ptr.To(o.GetUID()), ResourceVersion: ptr.To(o.GetResourceVersion()),
	}}
	request := client.Delete().Resource(resource).Name(o.GetName()).Body(options)
	if o.GetNamespace() != "" {
		request = request.Namespace(o.GetNamespace())
	}
	return request.Do(ctx).Error()
}

func unlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
