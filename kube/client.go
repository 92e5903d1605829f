package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Requests to the API server: a few at start, a handful for each expansion, restore and event after that, and one to three
// for each volume that is made. In a burst of claims it is the API server's own priority and fairness that shares it out:
// creates must not queue here as well.
const (
	requestsPerSecond = 50
	requestsBurst     = 100
)

// Client speaks to one API server.
type Client struct {
	core      rest.Interface
	storage   rest.Interface
	leases    rest.Interface
	snapshots rest.Interface // snapshot.storage.k8s.io, where that is installed
}

// NewClient takes the address and the token of the API server from the pod's service account or, outside a pod, from
// the file that the environment's KUBECONFIG names. It sends no request.
func NewClient() (*Client, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if path == "" {
			return nil, errors.New("there is no API server to speak to: this is not a pod, and KUBECONFIG is not set; with --standalone none is needed")
		}
		config, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		return nil, fmt.Errorf("the API server's address cannot be found: %w", err)
	}
	return NewClientFor(config)
}

// NewClientFor makes a client of a given configuration; it is not changed.
func NewClientFor(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, requestsBurst
	config.UserAgent = "nodelvm"
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	var c Client
	for _, group := range []struct {
		client  *rest.Interface
		path    string
		version schema.GroupVersion
		accept  string
	}{
		{&c.core, "/api", corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&c.storage, "/apis", storagev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&c.leases, "/apis", coordinationv1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&c.snapshots, "/apis", snapshotVersion, runtime.ContentTypeJSON}, // custom resources have no other encoding
	} {
		config.APIPath, config.GroupVersion = group.path, &group.version
		config.ContentType = group.accept
		config.AcceptContentTypes = group.accept + "," + runtime.ContentTypeJSON
		client, err := rest.RESTClientFor(config)
		if err != nil {
			return nil, err
		}
		*group.client = client
	}
	return &c, nil
}

// newScheme knows the types that this package reads and writes, and no other.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Event{}, &corev1.PersistentVolume{},
		&corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{},
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{})
	scheme.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{})
	scheme.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	scheme.AddKnownTypeWithName(snapshotVersion.WithKind(kindSnapshot), &snapshot{})
	scheme.AddKnownTypeWithName(snapshotVersion.WithKind("VolumeSnapshotClass"), &snapshotClass{})
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{})
	scheme.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	scheme.AddKnownTypeWithName(snapshotVersion.WithKind("VolumeSnapshotContent"), &content{})
	scheme.AddKnownTypeWithName(snapshotVersion.WithKind("VolumeSnapshotContentList"), &contentList{})
	for _, version := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, snapshotVersion,
	} {
		metav1.AddToGroupVersion(scheme, version)
	}
	return scheme
}

// reflect lists and watches a resource until ctx ends: what is there, and every change, goes into the store. An API
// server that cannot be reached is tried again, by client-go's backoff.
func reflect(ctx context.Context, client rest.Interface, resource, labels string, kind runtime.Object, store cache.TransformingStore) {
	source := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = labels, fields.Everything().String()
	})
	cache.NewReflectorWithOptions(source, kind, store, cache.ReflectorOptions{Name: resource}).RunWithContext(ctx)
}

// last is a deleted object as it was seen last; a watch that was cut may have missed its end.
func last(o any) any {
	if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return o
}

// get reads an object; false: there is none. A name that no object can have, as a tenant may write into a claim or a pod, names
// none: client-go would refuse to ask for it, and that would be tried again for ever.
func get(ctx context.Context, client rest.Interface, resource, namespace, name string, into runtime.Object) (bool, error) {
	if name == "" || len(rest.IsValidPathSegmentName(name)) > 0 || len(rest.IsValidPathSegmentName(namespace)) > 0 {
		return false, nil
	}
	request := client.Get().Resource(resource).Name(name)
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	err := request.Do(ctx).Into(into)
	if err != nil {
		return false, unlessNotFound(err)
	}
	return true, nil
}

// patch sends a JSON merge patch (RFC 7386); now becomes the object as it is after it.
func (c *Client) patch(ctx context.Context, resource, namespace, name, subresource string, body any, now runtime.Object) error {
	return patchBy(ctx, c.core, resource, namespace, name, subresource, body, now)
}

func patchBy(ctx context.Context, client rest.Interface, resource, namespace, name, subresource string, body any, now runtime.Object) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request := client.Patch(types.MergePatchType).Resource(resource).Name(name).Body(text)
	if namespace != "" {
		request = request.Namespace(namespace)
	}
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	return request.Do(ctx).Into(now)
}
