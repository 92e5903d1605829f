package kube

import (
	"slices"

	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"maps"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var snapshotVersion = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// labelManagedBy names the node that has a content's snapshot. The snapshot controller sets it if it runs with
// --enable-distributed-snapshotting, and csi-snapshotter on that node selects contents by it.
const labelManagedBy = "snapshot.storage.kubernetes.io/managed-by"

// content holds the fields that this package reads of a VolumeSnapshotContent.
type content struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Driver                  string `json:"driver"`
		VolumeSnapshotClassName string `json:"volumeSnapshotClassName"`
		Source                  struct {
			SnapshotHandle string `json:"snapshotHandle"`
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

// contentList is a VolumeSnapshotContentList.
type contentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []content `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (c *content) DeepCopyObject() runtime.Object {
	other := *c
	c.DeepCopyInto(&other.ObjectMeta)
	return &other
}

// DeepCopyObject implements runtime.Object.
func (l *contentList) DeepCopyObject() runtime.Object {
	other := *l
	other.Items = make([]content, len(l.Items))
	for i := range l.Items {
		other.Items[i] = *l.Items[i].DeepCopyObject().(*content)
	}
	return &other
}

// snapshotKey is the namespace and name of the content's VolumeSnapshot.
func (c *content) snapshotKey() string {
	return c.Spec.VolumeSnapshotRef.Namespace + "/" + c.Spec.VolumeSnapshotRef.Name
}

// contentStore keeps the handles of this node's ready snapshots from a watch. The API server selects the contents by label:
// those of other nodes never arrive.
type contentStore struct {
	changed func(snapshot string) // called without the lock

	mu    sync.Mutex
	ready map[string]*content // by name; several may name one snapshot, since a retained content outlives its snapshot
}

func newContentStore(changed func(snapshot string)) *contentStore {
	return &contentStore{changed: changed, ready: map[string]*content{}}
}

func (s *contentStore) Add(o any) error {
	if c, ok := o.(*content); ok {
		s.mu.Lock()
		s.put(c)
		s.mu.Unlock()
		s.changed(c.snapshotKey())
	}
	return nil
}

func (s *contentStore) Update(o any) error { return s.Add(o) }

func (s *contentStore) Delete(o any) error {
	if c, ok := last(o).(*content); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ready, c.Name)
	}
	return nil
}

func (s *contentStore) Replace(list []any, _ string) error {
	s.mu.Lock()
	clear(s.ready)
	for _, o := range list {
		if c, ok := o.(*content); ok {
			s.put(c)
		}
	}
	ready := maps.Clone(s.ready)
	s.mu.Unlock()
	for _, c := range ready {
		s.changed(c.snapshotKey())
	}
	return nil
}

func (s *contentStore) Resync() error { return nil }

// Transformer strips each object before the reflector collects a list.
func (s *contentStore) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if c, ok := o.(*content); ok {
			labels := only(c.Labels, labelManagedBy)
			c.ObjectMeta = names(c)
			c.Labels = labels
		}
		return o, nil
	}
}

func (s *contentStore) put(c *content) {
	delete(s.ready, c.Name)
	if c.Spec.Driver == DriverName && c.Status.ReadyToUse && c.Status.SnapshotHandle != "" {
		s.ready[c.Name] = c
	}
}

// find returns the ready contents on this node that name a snapshot.
func (s *contentStore) find(snapshot string) (found []*content) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ready {
		if c.snapshotKey() == snapshot {
			found = append(found, c)
		}
	}
	return found
}

// named returns the ready content of this name on this node; nil: the store has none.
func (s *contentStore) named(name string) *content {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready[name]
}

// knowsNoContents reports whether the API server lacks the snapshot API. The reflector reports other errors.
func (c *Client) knowsNoContents(ctx context.Context) bool {
	return apierrors.IsNotFound(c.snapshots.Get().Resource("volumesnapshotcontents").Param("limit", "1").Do(ctx).Error())
}

// names returns the fields of an object's metadata that a watch needs.
func names(o metav1.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()}
}

// only returns the wanted ones of an object's labels or annotations.
func only(all map[string]string, wanted ...string) map[string]string {
	kept := map[string]string{}
	for _, name := range wanted {
		if value, ok := all[name]; ok {
			kept[name] = value
		}
	}
	return kept
}

// sharedHandles finds the handles of this driver that several PersistentVolumes have.
func (c *Client) sharedHandles(ctx context.Context) (map[string][]string, error) {
	first, shared := map[string]string{}, map[string][]string{}
	err := c.eachVolume(ctx, func(pv *corev1.PersistentVolume) {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != DriverName {
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

// eachVolume visits all PersistentVolumes, a page at a time.
func (c *Client) eachVolume(ctx context.Context, visit func(*corev1.PersistentVolume)) error {
	for next := ""; ; {
		var page corev1.PersistentVolumeList
		err := c.core.Get().Resource("persistentvolumes").Param("limit", "500").Param("continue", next).Do(ctx).Into(&page)
		if err != nil {
			return fmt.Errorf("list the PersistentVolumes: %w", err)
		}
		for i := range page.Items {
			visit(&page.Items[i])
		}
		if next = page.Continue; next == "" {
			return nil
		}
	}
}
