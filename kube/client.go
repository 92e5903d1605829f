// Package kube is nodelvm's part in the Kubernetes API, and the only package with client-go.
//
// It reads the UID that names the cluster (ClusterID), and it tells the owners of storage classes that bind
// immediately why their claims will wait for ever (Watcher). One flow: a StorageClass with volumeBindingMode Immediate
// appears -> the watch delivers it, stripped -> one Warning event on the class -> a second watch on claims begins, and
// each pending claim of that class gets the event too -> the class goes, and the second watch with it.
//
// Nothing here is on the path of a volume: without the API server volumes go on being made, mounted and removed.
//
// The client is client-go's REST client with a scheme of the few types that are used. The generated clientset would
// hold every API group's types in the memory of every node.
package kube

import (
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Requests to the API server: a few at start, one for each event after that.
const (
	requestsPerSecond = 5
	requestsBurst     = 10
)

// Client speaks to one API server.
type Client struct {
	core    rest.Interface
	storage rest.Interface
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
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(newScheme()).WithoutConversion()
	core, err := restClient(config, "/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	storage, err := restClient(config, "/apis", storagev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	return &Client{core: core, storage: storage}, nil
}

func restClient(config *rest.Config, path string, version schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion = path, &version
	return rest.RESTClientFor(config)
}

// newScheme knows the types that this package reads and writes, and no other.
func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Namespace{}, &corev1.Event{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaimList{})
	scheme.AddKnownTypes(storagev1.SchemeGroupVersion, &storagev1.StorageClass{}, &storagev1.StorageClassList{})
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	metav1.AddToGroupVersion(scheme, storagev1.SchemeGroupVersion)
	return scheme
}
