package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/podlist"
	"github.com/nodelvm/nodelvm/pending"
)

// Objects are the requests of this package to the API server. Each change names the version of the object that it was decided from.
type Objects interface {
	Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) // nil: none
	Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error)                // nil: none
	Class(ctx context.Context, name string) (*storagev1.StorageClass, error)                  // nil: none
	Pods(ctx context.Context, namespace string) ([]corev1.Pod, error)
	RunsDriver(ctx context.Context, node string) (bool, error) // the node's kubelet has registered the driver
	Now(ctx context.Context, node string) (time.Time, error)   // the API server's time
	// Snapshots names the VolumeSnapshots of a namespace that were taken of a volume with this handle, and are on a node.
	Snapshots(ctx context.Context, namespace, node, volume string) ([]string, error)

	// CreateVolume creates a PersistentVolume. With dryRun it changes nothing, and returns nil if only an existing one is in the way.
	CreateVolume(ctx context.Context, pv *corev1.PersistentVolume, dryRun bool) error
	// PatchVolume changes annotations, where nil removes one, and the reclaim policy; "": it stays. dropFinalizers removes all finalizers.
	PatchVolume(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy, dropFinalizers bool) error
	DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error
	PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, subresource string, p kubeclient.Patch) error
}

// server is a real API server.
type server struct{ *kubeclient.Client }

func (s server) RunsDriver(ctx context.Context, node string) (bool, error) {
	csi, err := s.CSINode(ctx, node)
	return csi != nil && slices.ContainsFunc(csi.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == api.DriverName }), err
}

// podFields are the fields of a Pod that this package reads (k8s.io/api/core/v1/generated.proto).
var podFields = podlist.Fields{
	1: {1: nil, 3: nil, 5: nil, 8: nil, 9: nil},        // metadata: name, namespace, uid, creationTimestamp, deletionTimestamp
	2: {1: {1: nil, 2: {10: nil, 29: {}}}, 10: nil},    // spec: of the volumes name, persistentVolumeClaim and the presence of ephemeral; nodeName
	3: {1: nil, 2: {1: nil, 2: nil}, 8: {2: {2: nil}}}, // status: phase, conditions, and since when the containers run
}

// Pods lists the pods that use claims. It fails if it cannot tell which do.
func (s server) Pods(ctx context.Context, namespace string) (pods []corev1.Pod, err error) {
	leftOut, err := podlist.Each(ctx, s.Core, namespace, fields.Everything(), podFields, func(pod *corev1.Pod) {
		if len(pending.ClaimNames(pod)) > 0 {
			pods = append(pods, *pod.DeepCopy())
		}
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot list the pods of namespace %s: %w", namespace, err)
	case leftOut > 0:
		return nil, fmt.Errorf("%d pods of namespace %s have so many volumes that the driver does not read them, and one may use the claim: delete these pods", leftOut, namespace)
	}
	return pods, nil
}

func (s server) CreateVolume(ctx context.Context, pv *corev1.PersistentVolume, dryRun bool) error {
	request := s.Core.Post().Resource("persistentvolumes").Body(pv)
	if dryRun {
		request = request.VersionedParams(&metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ParameterCodec)
	}
	err := request.Do(ctx).Error()
	if dryRun && apierrors.IsAlreadyExists(err) { // admission was asked before
		return nil
	}
	return err
}

func (s server) PatchVolume(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy, dropFinalizers bool) error {
	metadata := map[string]any{"resourceVersion": pv.ResourceVersion, "uid": pv.UID}
	body := map[string]any{"metadata": metadata}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if dropFinalizers {
		metadata["finalizers"] = nil
	}
	if policy != "" {
		body["spec"] = map[string]any{"persistentVolumeReclaimPolicy": policy}
	}
	return s.Patch(ctx, "persistentvolumes", "", pv.Name, "", body, &corev1.PersistentVolume{})
}

func (s server) DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion}}
	return s.Core.Delete().Resource("persistentvolumes").Name(pv.Name).Body(options).Do(ctx).Error()
}

func (s server) PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, subresource string, p kubeclient.Patch) error {
	_, err := s.Client.PatchClaim(ctx, claim, subresource, p)
	return err
}
