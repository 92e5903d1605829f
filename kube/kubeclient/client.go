package kubeclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodelvm/nodelvm/api"
)

// Client-side limits. The driver sends a few requests at start, a handful for each expansion, restore and event, one to
// three for each new volume, and one for each 500 PersistentVolumes before it deletes one. In a burst of claims the API server's
// priority and fairness shares it out; creates must not queue here as well.
const (
	requestsPerSecond = 50
	requestsBurst     = 100
)

// Client is a client of one API server.
type Client struct {
	Core      rest.Interface
	Storage   rest.Interface
	Snapshots rest.Interface // snapshot.storage.k8s.io, where the cluster has it

	GroupSnapshots rest.Interface // groupsnapshot.storage.k8s.io, where the cluster has it
}

// NewClient creates a client from NewConfig.
func NewClient() (*Client, error) {
	config, err := NewConfig()
	if err != nil {
		return nil, err
	}
	return NewClientFor(config)
}

// ErrNoServer says that NewConfig finds no API server.
var ErrNoServer = errors.New("no API server is configured: this process is not in a pod, and KUBECONFIG is not set. Run it in its pod, or set KUBECONFIG")

// NewConfig takes the API server's address and token from the pod's service account or, outside a pod, from the file in
// KUBECONFIG; otherwise ErrNoServer. It sends no request.
func NewConfig() (*rest.Config, error) {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if path == "" {
			return nil, ErrNoServer
		}
		config, err = clientcmd.BuildConfigFromFlags("", path)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot determine the API server's address: %w", err)
	}
	return config, nil
}

// NewClientFor creates a client from a configuration, which it does not change.
func NewClientFor(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = requestsPerSecond, requestsBurst
	config.UserAgent = "nodelvm"
	config.NegotiatedSerializer = serializer.NewCodecFactory(NewScheme()).WithoutConversion()
	var c Client
	for _, group := range []struct {
		client  *rest.Interface
		path    string
		version schema.GroupVersion
		accept  string
	}{
		{&c.Core, "/api", corev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&c.Storage, "/apis", storagev1.SchemeGroupVersion, runtime.ContentTypeProtobuf},
		{&c.Snapshots, "/apis", SnapshotVersion, runtime.ContentTypeJSON}, // custom resources have no other encoding
		{&c.GroupSnapshots, "/apis", GroupSnapshotVersion, runtime.ContentTypeJSON},
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

// NewScheme registers only the types that this package reads and writes.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Event{}, &corev1.PersistentVolume{},
		&corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{},
		&corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{})
	scheme.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{}, &storagev1.CSINode{},
		&storagev1.VolumeAttributesClass{})
	scheme.AddKnownTypeWithName(SnapshotVersion.WithKind(KindSnapshot), &Snapshot{})
	scheme.AddKnownTypeWithName(SnapshotVersion.WithKind("VolumeSnapshotClass"), &SnapshotClass{})
	scheme.AddKnownTypes(authenticationv1.SchemeGroupVersion, &authenticationv1.TokenReview{})
	scheme.AddKnownTypes(authorizationv1.SchemeGroupVersion, &authorizationv1.SubjectAccessReview{})
	scheme.AddKnownTypeWithName(SnapshotVersion.WithKind(KindContent), &Content{})
	scheme.AddKnownTypeWithName(SnapshotVersion.WithKind("VolumeSnapshotContentList"), &ContentList{})
	scheme.AddKnownTypeWithName(GroupSnapshotVersion.WithKind(KindGroupContent), &GroupContent{})
	scheme.AddKnownTypeWithName(GroupSnapshotVersion.WithKind(KindGroupContent+"List"), &GroupContentList{})
	for _, version := range []schema.GroupVersion{
		corev1.SchemeGroupVersion, storagev1.SchemeGroupVersion, SnapshotVersion, GroupSnapshotVersion,
	} {
		metav1.AddToGroupVersion(scheme, version)
	}
	return scheme
}

// Reflect lists and watches a resource until ctx ends and passes every object and change to the store. While the API server
// is unreachable, it retries with client-go's back-off.
func Reflect(ctx context.Context, client rest.Interface, resource, labels string, kind runtime.Object, store cache.TransformingStore) {
	source := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = labels, fields.Everything().String()
	})
	cache.NewReflectorWithOptions(source, kind, memoryReturner{store}, cache.ReflectorOptions{Name: resource}).RunWithContext(ctx)
}

// Last returns the last known state of a deleted object; an interrupted watch may have missed its final state.
func Last(o any) any {
	if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return o
}

// Get reads an object; false: it does not exist. A tenant may write a name into a claim or pod that no object can have, of any length. Get
// treats it as missing: client-go or the API server would refuse the request, and the caller would retry forever. A 404 that the API server did not write
// proves no absence: each one serves the API group "".
func Get(ctx context.Context, client rest.Interface, resource, namespace, name string, into runtime.Object) (bool, error) {
	if len(validation.IsDNS1123Subdomain(name)) > 0 || namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return false, nil
	}
	err := client.Get().Resource(resource).NamespaceIfScoped(namespace, namespace != "").Name(name).Do(ctx).Into(into)
	if apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) && client.APIVersion().Group == corev1.GroupName {
		return false, fmt.Errorf("the answer is not one of the API server, but perhaps of a proxy before it: %v", err) //nolint:errorlint // callers take a wrapped one as absence
	}
	return err == nil, UnlessNotFound(err)
}

// Read is Get for a caller that has no object yet; nil: it does not exist. kind is what an error calls it.
func Read[T any, P interface {
	*T
	runtime.Object
}](ctx context.Context, client rest.Interface, kind, resource, namespace, name string) (P, error) {
	object := P(new(T))
	there, err := Get(ctx, client, resource, namespace, name, object)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot read %s %s: %w", kind, strings.TrimPrefix(namespace+"/"+name, "/"), err)
	case !there:
		return nil, nil
	}
	return object, nil
}

// Patch sends a JSON merge patch (RFC 7386) and stores the patched object in now.
func (c *Client) Patch(ctx context.Context, resource, namespace, name, subresource string, body any, now runtime.Object) error {
	return PatchBy(ctx, c.Core, resource, namespace, name, subresource, body, now)
}

func PatchBy(ctx context.Context, client rest.Interface, resource, namespace, name, subresource string, body any, now runtime.Object) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request := client.Patch(types.MergePatchType).Resource(resource).NamespaceIfScoped(namespace, namespace != "").Name(name)
	return request.SubResource(subresource).Body(text).Do(ctx).Into(now)
}

func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// ClusterID returns the UID of the namespace kube-system, which identifies a cluster for its whole life. An error says that
// the API server was unreachable or that the token may not read the namespace.
func ClusterID(ctx context.Context, client *Client) (string, error) {
	var ns corev1.Namespace
	if err := client.Core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).Do(ctx).Into(&ns); err != nil {
		return "", fmt.Errorf("cannot read the UID of namespace %s, which identifies this cluster: %w", metav1.NamespaceSystem, err)
	}
	return string(ns.UID), nil
}

// nodeName is where a token that is bound to a pod names the pod's node.
const nodeName = "authentication.kubernetes.io/node-name"

// ReviewPeer returns the account and the node of a token with the audience api.AudienceMove; "": it has none.
func (c *Client) ReviewPeer(ctx context.Context, token string) (account, node string, err error) {
	who := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{api.AudienceMove}}}
	if err := c.Core.Post().AbsPath("/apis/authentication.k8s.io/v1/tokenreviews").Body(who).Do(ctx).Into(who); err != nil {
		return "", "", fmt.Errorf("cannot review the token: %w", err)
	}
	if extra := who.Status.User.Extra[nodeName]; who.Status.Authenticated && len(extra) == 1 {
		return who.Status.User.Username, extra[0], nil
	}
	return who.Status.User.Username, "", nil
}
