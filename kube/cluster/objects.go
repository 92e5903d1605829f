package cluster

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// NewClientset creates client-go's clientset from a configuration, which it does not change.
func NewClientset(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.UserAgent = "nodelvm-controller"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// Objects has the facts about the cluster's objects: seven watches.
type Objects struct {
	Nodes      Kind[*corev1.Node]
	Volumes    Kind[*Volume]
	Claims     Kind[*Claim]
	Classes    Kind[*storagev1.StorageClass]
	Capacities Kind[*Capacity] // of this driver
	Contents   Kind[*Content]  // of drivers that run on each node
	Groups     Kind[*Content]  // the same, of group snapshots

	factory informers.SharedInformerFactory
	client  *kubeclient.Client // of custom resources
	log     *slog.Logger
}

// Resources of Contents and Groups.
const (
	contents = "volumesnapshotcontents"
	groups   = "volumegroupsnapshotcontents"
)

// OfDriver selects the CSIStorageCapacities of this driver, which are all in the namespace of its pods.
const OfDriver = "csi.storage.k8s.io/drivername=" + api.DriverName

// NewObjects creates Objects without sending a request. The namespace is that of the driver's CSIStorageCapacities.
func NewObjects(clientset kubernetes.Interface, client *kubeclient.Client, namespace string, log *slog.Logger) *Objects {
	o := &Objects{factory: informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithTransform(factsOf)), client: client, log: log}
	core, storage := o.factory.Core().V1(), o.factory.Storage().V1()
	o.Nodes.informer = core.Nodes().Informer()
	o.Volumes.informer = core.PersistentVolumes().Informer()
	o.Claims.informer = core.PersistentVolumeClaims().Informer()
	o.Classes.informer = storage.StorageClasses().Informer()
	o.Capacities.informer = o.factory.InformerFor(&storagev1.CSIStorageCapacity{}, func(clientset kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return storageinformers.NewFilteredCSIStorageCapacityInformer(clientset, namespace, resync, nil, func(options *metav1.ListOptions) { options.LabelSelector = OfDriver })
	})
	o.Contents.informer = contentInformer(client.Snapshots, contents, &kubeclient.Content{})
	o.Groups.informer = contentInformer(client.GroupSnapshots, groups, &kubeclient.GroupContent{})
	o.Volumes.index(func(v *Volume) string { return v.Node })
	o.Claims.index(func(c *Claim) string { return c.SelectedNode })
	o.Contents.index(func(c *Content) string { return c.Node })
	o.Groups.index(func(c *Content) string { return c.Node })
	return o
}

// contentInformer is not one of the factory's: the clientset lacks custom resources, and not each cluster has these.
func contentInformer(client rest.Interface, resource string, kind runtime.Object) cache.SharedIndexInformer {
	source := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
		options.LabelSelector = api.LabelManagedBy
	})
	informer := cache.NewSharedIndexInformer(source, kind, 0, cache.Indexers{})
	utilruntime.Must(informer.SetTransform(factsOf)) // it fails only for an informer that has started
	return informer
}

// Run watches until ctx ends, and runs the parts meanwhile. While the API server does not answer, it retries. It may be called once.
func (o *Objects) Run(ctx context.Context, parts ...func(context.Context, *Objects)) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, part := range parts {
		running.Go(func() { part(ctx, o) })
	}
	o.factory.StartWithContext(ctx)
	running.Go(o.factory.Shutdown) // it waits for the watches to end
	running.Go(func() { o.watchContents(ctx, &o.Contents, o.client.Snapshots, contents) })
	running.Go(func() { o.watchContents(ctx, &o.Groups, o.client.GroupSnapshots, groups) })
	if o.factory.WaitForCacheSyncWithContext(ctx).Err == nil {
		debug.FreeOSMemory() // the lists leave garbage of many times the facts
	}
}

// watchContents watches the contents of snapshots, if the cluster has their API. A later installation counts after a restart. Until the API server answers,
// the contents are not synced. This account has the right to read those of group snapshots only with groupSnapshots.enabled.
func (o *Objects) watchContents(ctx context.Context, kind *Kind[*Content], client rest.Interface, resource string) {
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, kubeclient.BackoffMost) {
		err := client.Get().Resource(resource).Param("limit", "1").Do(ctx).Error()
		switch {
		case err == nil:
			kind.informer.RunWithContext(ctx)
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err) && resource == groups:
			kind.isAbsent.Store(true)
			return
		case ctx.Err() == nil:
			o.log.WarnContext(ctx, "cannot determine whether this cluster has snapshots; retrying", "resource", resource, "error", err)
		}
	}
}
