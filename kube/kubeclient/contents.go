package kubeclient

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/nodelvm/nodelvm/api"
)

var SnapshotVersion = schema.GroupVersion{Group: api.SnapshotGroup, Version: "v1"}

// Content holds the fields that this package reads of a VolumeSnapshotContent.
type Content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Driver                  string `json:"driver"`
		VolumeSnapshotClassName string `json:"volumeSnapshotClassName"`
		DeletionPolicy          string `json:"deletionPolicy"`
		Source                  struct {
			SnapshotHandle string `json:"snapshotHandle"`
			VolumeHandle   string `json:"volumeHandle"`
		} `json:"source"`
		VolumeSnapshotRef struct {
			Kind      string    `json:"kind"`
			Namespace string    `json:"namespace"`
			Name      string    `json:"name"`
			UID       types.UID `json:"uid"`
		} `json:"volumeSnapshotRef"`
	} `json:"spec"`
	Status struct {
		SnapshotHandle string `json:"snapshotHandle"`
		ReadyToUse     bool   `json:"readyToUse"`
	} `json:"status"`
}

// ContentList is a VolumeSnapshotContentList.
type ContentList = listOf[Content, *Content]

// listOf is a list of custom resources.
type listOf[T any, P interface {
	*T
	runtime.Object
}] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []T `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (c *Content) DeepCopyObject() runtime.Object {
	other := *c
	c.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// DeepCopyObject implements runtime.Object.
func (l *listOf[T, P]) DeepCopyObject() runtime.Object {
	other := *l
	other.Items = make([]T, len(l.Items))
	for i := range l.Items {
		other.Items[i] = *P(&l.Items[i]).DeepCopyObject().(P)
	}
	return &other
}

// SnapshotKey is the namespace and name of the content's VolumeSnapshot.
func (c *Content) SnapshotKey() string {
	return c.Spec.VolumeSnapshotRef.Namespace + "/" + c.Spec.VolumeSnapshotRef.Name
}

// Content reads a VolumeSnapshotContent; nil: it does not exist.
func (c *Client) Content(ctx context.Context, name string) (*Content, error) {
	return Read[Content](ctx, c.Snapshots, "VolumeSnapshotContent", "volumesnapshotcontents", "", name)
}

// KnowsNoContents reports whether the API server lacks the snapshot API. The reflector reports other errors.
func (c *Client) KnowsNoContents(ctx context.Context) bool {
	return apierrors.IsNotFound(c.Snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "1").Do(ctx).Error())
}

// Names returns the fields of an object's metadata that a watch needs.
func Names(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// Only returns the wanted ones of an object's labels or annotations.
func Only(all map[string]string, wanted ...string) map[string]string {
	kept := map[string]string{}
	for _, name := range wanted {
		if value, ok := all[name]; ok {
			kept[name] = value
		}
	}
	return kept
}

// SharedHandles finds the handles of this driver that several PersistentVolumes have.
func (c *Client) SharedHandles(ctx context.Context) (map[string][]string, error) {
	first, shared := map[string]string{}, map[string][]string{}
	err := c.EachVolume(ctx, func(pv *corev1.PersistentVolume) {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != api.DriverName {
			return
		}
		handle := pv.Spec.CSI.VolumeHandle
		switch other, there := first[handle]; {
		case !there:
			first[handle] = pv.Name
		case len(shared[handle]) == 0:
			shared[handle] = []string{other, pv.Name}
		case !slices.Contains(shared[handle], pv.Name): // two pages may contain it, if a PersistentVolume is created in between
			shared[handle] = append(shared[handle], pv.Name)
		}
	})
	return shared, err
}

// EachVolume visits all PersistentVolumes.
func (c *Client) EachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	return eachPage(ctx, c.Core, "persistentvolumes", "", func(page *corev1.PersistentVolumeList) {
		for i := range page.Items {
			visit(&page.Items[i])
		}
	})
}

// EachContent visits all VolumeSnapshotContents; none without the snapshot API.
func (c *Client) EachContent(ctx context.Context, visit func(*Content)) error {
	return c.eachContent(ctx, "", visit)
}

// ContentsOn visits the VolumeSnapshotContents whose snapshots are on a node; none without the snapshot API.
func (c *Client) ContentsOn(ctx context.Context, node string, visit func(*Content)) error {
	return c.eachContent(ctx, api.LabelManagedBy+"="+node, visit)
}

func (c *Client) eachContent(ctx context.Context, selector string, visit func(*Content)) error {
	return eachCustom(ctx, c.Snapshots, "volumesnapshotcontents", selector, visit)
}

// EachGroupContent visits all VolumeGroupSnapshotContents; none without the API of group snapshots.
func (c *Client) EachGroupContent(ctx context.Context, visit func(*GroupContent)) error {
	return eachCustom(ctx, c.GroupSnapshots, "volumegroupsnapshotcontents", "", visit)
}

// eachCustom visits the custom resources that a label selector selects; none without their API.
func eachCustom[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, api rest.Interface, resource, selector string, visit func(P)) error {
	return UnlessNotFound(eachPage(ctx, api, resource, selector, func(page *listOf[T, P]) {
		for i := range page.Items {
			visit(&page.Items[i])
		}
	}))
}

// eachPage lists the objects of the whole cluster that a label selector selects, a page at a time.
func eachPage[L any, P interface {
	*L
	runtime.Object
	metav1.ListInterface
}](ctx context.Context, api rest.Interface, resource, selector string, visit func(P)) error {
	for next := ""; ; {
		page := P(new(L))
		if err := api.Get().Resource(resource).Param("labelSelector", selector).Param("limit", "500").Param("continue", next).Do(ctx).Into(page); err != nil {
			return fmt.Errorf("cannot list %s: %w", resource, err)
		}
		visit(page)
		if next = page.GetContinue(); next == "" {
			return nil
		}
	}
}
