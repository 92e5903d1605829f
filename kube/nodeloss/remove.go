package nodeloss

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

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
