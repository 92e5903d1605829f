package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reasonImmediateBinding marks the events on classes that bind immediately and on their claims.
const reasonImmediateBinding = "ImmediateBinding"

// classEvent tells the class's owner. The mode of a class cannot be changed, so the way out is a new class.
func classEvent(class *storagev1.StorageClass, now time.Time) *corev1.Event {
	return warning(corev1.ObjectReference{
		APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass",
		Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion,
	}, "volumeBindingMode is Immediate: a volume would be placed before the scheduler has chosen a node, on a disk that the pod "+
		"may never reach, so claims of this class stay Pending. Make the class anew with volumeBindingMode: WaitForFirstConsumer "+
		"(the mode of an existing class cannot be changed).", now)
}

// claimEvent tells the claim's owner. The class of a claim cannot be changed either.
func claimEvent(claim *corev1.PersistentVolumeClaim, now time.Time) *corev1.Event {
	class := *claim.Spec.StorageClassName
	return warning(corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "PersistentVolumeClaim",
		Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}, "storage class "+class+" has volumeBindingMode Immediate: no node is chosen for this claim, and it stays Pending. "+
		"Delete the claim and make it anew with a class that says WaitForFirstConsumer, or ask the administrator to make "+class+" anew with it.", now)
}

// warning makes an event whose name follows from its object and reason. Every node watches and tells; one event stands.
func warning(about corev1.ObjectReference, message string, now time.Time) *corev1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where the API server demands events on objects without a namespace
	}
	name := about.Name
	if len(name) > 200 { // a name may have 253 bytes, the hash included
		name = name[:200]
	}
	hash := sha256.Sum256([]byte(string(about.UID) + reasonImmediateBinding))
	when := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:8])},
		InvolvedObject:      about,
		Type:                corev1.EventTypeWarning,
		Reason:              reasonImmediateBinding,
		Message:             message,
		Source:              corev1.EventSource{Component: DriverName},
		ReportingController: DriverName,
		FirstTimestamp:      when,
		LastTimestamp:       when,
		Count:               1,
	}
}

// post writes the event, unless another node has done so.
func (c *Client) post(ctx context.Context, event *corev1.Event) error {
	err := c.core.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
