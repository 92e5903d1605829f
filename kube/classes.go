package kube

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// newClassStore keeps this driver's storage classes. A class that was deleted and created again may name another driver.
func newClassStore(changed func(name string)) *kubeclient.FilteredStore[*storagev1.StorageClass] {
	return &kubeclient.FilteredStore[*storagev1.StorageClass]{
		Key: kubeclient.KeyOfObject,
		Keep: func(o any) (*storagev1.StorageClass, bool) {
			class, ok := o.(*storagev1.StorageClass)
			if !ok || class.Provisioner != api.DriverName {
				return nil, false
			}
			return stripClass(class), true
		},
		Strip: func(o any) any {
			if class, ok := o.(*storagev1.StorageClass); ok {
				return stripClass(class)
			}
			return o
		},
		Changed: func(name string, _ []*storagev1.StorageClass) { changed(name) },
	}
}

// bindsImmediately reports whether csi-provisioner creates volumes of a class before a node is selected. Immediate is the
// API's default.
func bindsImmediately(class *storagev1.StorageClass) bool {
	mode := class.VolumeBindingMode
	return mode == nil || *mode == storagev1.VolumeBindingImmediate
}

// stripClass keeps the fields that this package reads.
func stripClass(class *storagev1.StorageClass) *storagev1.StorageClass {
	kept := metav1.ObjectMeta{Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion}
	if interval, annotated := class.Annotations[api.AnnotationTrimInterval]; annotated {
		kept.Annotations = map[string]string{api.AnnotationTrimInterval: interval}
	}
	return &storagev1.StorageClass{
		ObjectMeta:  kept,
		Provisioner: class.Provisioner, VolumeBindingMode: class.VolumeBindingMode, Parameters: class.Parameters,
	}
}
