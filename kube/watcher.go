package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// DriverName is the provisioner whose classes are watched.
const DriverName = "nodelvm.io"

// Watcher warns where a class of ours binds immediately. Idle, it costs one watch on storage classes; a watch on claims
// is added only while there is such a class. Each object is told of once in the life of a Watcher.
type Watcher struct {
	client *Client
	log    *slog.Logger

	work sync.WaitGroup // watches that Run has started

	mu        sync.Mutex
	told      map[types.UID]bool
	immediate map[string]bool // names of the classes that bind immediately
	// stopClaims ends the watch on claims; nil while there is none.
	stopClaims context.CancelFunc
}

// NewWatcher makes a Watcher; log may be nil.
func NewWatcher(client *Client, log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.Default()
	}
	return &Watcher{client: client, log: log, told: map[types.UID]bool{}, immediate: map[string]bool{}}
}

// Run watches until ctx ends, and returns nil then, when everything that it started has ended too. An API server that
// cannot be reached is tried again, by client-go's backoff.
func (w *Watcher) Run(ctx context.Context) error {
	w.inform(ctx, w.client.storage, "storageclasses", &storagev1.StorageClass{}, stripClass, cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.classSeen(ctx, o.(*storagev1.StorageClass)) },
		UpdateFunc: func(_, o any) { w.classSeen(ctx, o.(*storagev1.StorageClass)) },
		DeleteFunc: func(o any) {
			if class, ok := last(o).(*storagev1.StorageClass); ok {
				w.classGone(class)
			}
		},
	})
	w.work.Wait()
	return nil
}

// inform runs a list and a watch until ctx ends. What it keeps in memory is what transform leaves.
func (w *Watcher) inform(ctx context.Context, client rest.Interface, resource string, kind runtime.Object, transform cache.TransformFunc, handler cache.ResourceEventHandlerFuncs) {
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, resource, metav1.NamespaceAll, fields.Everything()),
		ObjectType:    kind,
		Transform:     transform,
		Handler:       handler,
	})
	informer.RunWithContext(ctx)
}

// bindsImmediately tells whether the class is ours and names no node before it provisions. Immediate is the API's
// default.
func bindsImmediately(class *storagev1.StorageClass) bool {
	mode := class.VolumeBindingMode
	return class.Provisioner == DriverName && (mode == nil || *mode == storagev1.VolumeBindingImmediate)
}

func (w *Watcher) classSeen(ctx context.Context, class *storagev1.StorageClass) {
	if !bindsImmediately(class) {
		w.classGone(class) // it may have been made anew under the same name, between two looks
		return
	}
	w.tell(ctx, class.UID, classEvent(class, time.Now()))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.immediate[class.Name] {
		return
	}
	w.immediate[class.Name] = true
	if w.stopClaims != nil { // claims that were passed over must be looked at again
		w.stopClaims()
	}
	claims, stop := context.WithCancel(ctx)
	w.stopClaims = stop
	w.work.Go(func() { w.watchClaims(claims) })
}

// last is a deleted object as it was seen last; a watch that was cut may have missed its end.
func last(o any) any {
	if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return o
}

func (w *Watcher) classGone(class *storagev1.StorageClass) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.told, class.UID)
	delete(w.immediate, class.Name)
	if len(w.immediate) == 0 && w.stopClaims != nil {
		w.stopClaims()
		w.stopClaims = nil
	}
}

func (w *Watcher) watchClaims(ctx context.Context) {
	seen := func(o any) { w.claimSeen(ctx, o.(*corev1.PersistentVolumeClaim)) }
	w.inform(ctx, w.client.core, "persistentvolumeclaims", &corev1.PersistentVolumeClaim{}, stripClaim, cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, o any) { seen(o) },
		DeleteFunc: func(o any) {
			if claim, ok := last(o).(*corev1.PersistentVolumeClaim); ok {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.told, claim.UID)
			}
		},
	})
}

func (w *Watcher) claimSeen(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	if claim.Spec.StorageClassName == nil || claim.Spec.VolumeName != "" || claim.Status.Phase == corev1.ClaimBound {
		return
	}
	w.mu.Lock()
	immediate := w.immediate[*claim.Spec.StorageClassName]
	w.mu.Unlock()
	if immediate {
		w.tell(ctx, claim.UID, claimEvent(claim, time.Now()))
	}
}

// tell posts an event once for each object. A post that fails is logged and tried again when the object is seen again.
func (w *Watcher) tell(ctx context.Context, uid types.UID, event *corev1.Event) {
	w.mu.Lock()
	told := w.told[uid]
	w.told[uid] = true
	w.mu.Unlock()
	if told {
		return
	}
	about := event.InvolvedObject
	if err := w.client.post(ctx, event); err != nil {
		w.mu.Lock()
		delete(w.told, uid)
		w.mu.Unlock()
		w.log.WarnContext(ctx, "an event could not be written", "kind", about.Kind, "namespace", about.Namespace, "name", about.Name, "error", err)
		return
	}
	w.log.InfoContext(ctx, "warned of immediate binding", "kind", about.Kind, "namespace", about.Namespace, "name", about.Name)
}

// stripClass keeps what bindsImmediately and classEvent read.
func stripClass(o any) (any, error) {
	class, ok := o.(*storagev1.StorageClass)
	if !ok {
		return o, nil
	}
	return &storagev1.StorageClass{ObjectMeta: stripMeta(&class.ObjectMeta), Provisioner: class.Provisioner, VolumeBindingMode: class.VolumeBindingMode}, nil
}

// stripClaim keeps what claimSeen and claimEvent read.
func stripClaim(o any) (any, error) {
	claim, ok := o.(*corev1.PersistentVolumeClaim)
	if !ok {
		return o, nil
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: stripMeta(&claim.ObjectMeta),
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: claim.Spec.StorageClassName, VolumeName: claim.Spec.VolumeName},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: claim.Status.Phase},
	}, nil
}

func stripMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
}
