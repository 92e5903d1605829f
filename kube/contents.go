package kube

import (
	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// newContentStore keeps this node's contents with a ready snapshot. The API server selects the contents by label: those of other
// nodes never arrive. Several may name one VolumeSnapshot, since a retained content outlives it.
func newContentStore(changed func(snapshot string)) *kubeclient.FilteredStore[*kubeclient.Content] {
	return &kubeclient.FilteredStore[*kubeclient.Content]{
		Key: kubeclient.KeyOfObject,
		Keep: func(o any) (*kubeclient.Content, bool) {
			c, ok := o.(*kubeclient.Content)
			return c, ok && c.Spec.Driver == api.DriverName && c.Status.ReadyToUse && c.Status.SnapshotHandle != ""
		},
		Strip: func(o any) any {
			if c, ok := o.(*kubeclient.Content); ok {
				labels, annotations := kubeclient.Only(c.Labels, api.LabelManagedBy), kubeclient.Only(c.Annotations, api.AnnotationCopyOffer)
				c.ObjectMeta = kubeclient.Names(c)
				c.Labels, c.Annotations = labels, annotations
			}
			return o
		},
		Changed: func(_ string, versions []*kubeclient.Content) {
			for _, c := range versions {
				changed(c.SnapshotKey())
			}
		},
	}
}
