package kube

import (
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// classStore keeps this driver's storage classes from a watch.
type classStore struct {
	changed func(class *storagev1.StorageClass) // called without the lock

	mu   sync.Mutex
	ours map[string]*storagev1.StorageClass // by name
}

func newClassStore(changed func(*storagev1.StorageClass)) *classStore {
	return &classStore{changed: changed, ours: map[string]*storagev1.StorageClass{}}
}

func (s *classStore) Add(o any) error {
	class, ok := o.(*storagev1.StorageClass)
	if !ok {
		return nil
	}
	s.mu.Lock()
	ours := s.put(class)
	s.mu.Unlock()
	if ours {
		s.changed(class)
	}
	return nil
}

func (s *classStore) Update(o any) error { return s.Add(o) }

func (s *classStore) Delete(o any) error {
	if class, ok := kubeclient.Last(o).(*storagev1.StorageClass); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ours, class.Name)
	}
	return nil
}

func (s *classStore) Replace(list []any, _ string) error {
	var changed []*storagev1.StorageClass
	s.mu.Lock()
	clear(s.ours)
	for _, o := range list {
		if class, ok := o.(*storagev1.StorageClass); ok && s.put(class) {
			changed = append(changed, class)
		}
	}
	s.mu.Unlock()
	for _, class := range changed {
		s.changed(class)
	}
	return nil
}

func (s *classStore) Resync() error { return nil }

// Transformer strips each object before the reflector collects a list.
func (s *classStore) Transformer() cache.TransformFunc {
	return func(o any) (any, error) {
		if class, ok := o.(*storagev1.StorageClass); ok {
			return stripClass(class), nil
		}
		return o, nil
	}
}

// put stores a class and reports whether it is this driver's. A class that was deleted and created again may name another
// driver.
func (s *classStore) put(class *storagev1.StorageClass) bool {
	delete(s.ours, class.Name)
	if class.Provisioner != api.DriverName {
		return false
	}
	s.ours[class.Name] = stripClass(class)
	return true
}

// find returns this driver's class of that name.
func (s *classStore) find(name string) (*storagev1.StorageClass, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	class, ok := s.ours[name]
	return class, ok
}

// bindsImmediately reports whether csi-provisioner creates volumes of a class before a node is selected. Immediate is the
// API's default.
func bindsImmediately(class *storagev1.StorageClass) bool {
	mode := class.VolumeBindingMode
	return mode == nil || *mode == storagev1.VolumeBindingImmediate
}

// stripClass keeps what this package reads.
func stripClass(class *storagev1.StorageClass) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion},
		Provisioner: class.Provisioner, VolumeBindingMode: class.VolumeBindingMode, Parameters: class.Parameters,
	}
}
