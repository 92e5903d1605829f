package kube

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
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

// warnAgain is the approximate interval of warnings to an owner: such a class and its claims do not change, and the API
// server deletes events after an hour. Every node warns, with jitter.
const warnAgain = time.Hour

// warn writes an event about an object, and queues the object for the next warning.
func (a *Agent) warn(ctx context.Context, object kubeclient.ObjectKey, n kubeclient.Event) error {
	err := a.events.RecordOnce(ctx, n)
	if err == nil {
		a.queue.AddAfter(object, wait.Jitter(warnAgain, 0.5))
	}
	return err
}

// warnOfClass warns the class's owner, who must create another class: the mode of a class is immutable.
func (a *Agent) warnOfClass(ctx context.Context, class *storagev1.StorageClass) error {
	return a.warn(ctx, kubeclient.ObjectKey{Kind: kubeclient.KindClass, Key: class.Name}, kubeclient.Event{About: kubeclient.AboutClass(class), Kind: corev1.EventTypeWarning, Reason: api.ReasonImmediateBindingUnsupported,
		Message: "volumeBindingMode is Immediate: a volume would be created before the scheduler selects a node, on a disk that the pod " +
			"may not reach. Claims of this class stay Pending. Delete the class and create it again with volumeBindingMode: WaitForFirstConsumer " +
			"(Kubernetes does not change the mode of an existing class)."})
}

// warnOfClaim warns the claim's owner. The class of a claim is immutable, too.
func (a *Agent) warnOfClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class := kubeclient.ClassOf(claim)
	return a.warn(ctx, kubeclient.ObjectKey{Kind: kubeclient.KindClaim, Key: kubeclient.KeyOf(claim)}, kubeclient.Event{About: kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), Kind: corev1.EventTypeWarning, Reason: api.ReasonImmediateBindingUnsupported,
		Message: "storage class " + class + " has volumeBindingMode Immediate: no node is selected for this claim, and it stays Pending. " +
			"Delete the claim and create it again with a class that has WaitForFirstConsumer, or ask the administrator to create " + class + " again with that mode."})
}

// NameThinClass adds the name of a thin class to the refusal of a snapshot or clone (lvm.ErrThick), if the agent knows one.
func (a *Agent) NameThinClass(err error) error {
	if !errors.Is(err, lvm.ErrThick) {
		return err
	}
	classes := a.classes.Items(func(class *storagev1.StorageClass) bool { return class.Parameters["layout"] == string(lvm.LayoutThin) })
	if len(classes) == 0 {
		return err
	}
	return lvm.Errorf(lvm.KindOf(err), "%w; for example the StorageClass %s", err, classes[0].Name)
}
