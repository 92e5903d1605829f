package move

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Requests of all moves of a node, per second and in a burst: half of what the driver's client may send. Tenants can have any number of claims ask
// for moves, and change them as often as they like; the driver's other requests must not wait for these.
const (
	requestsPerSecond = 25
	requestsBurst     = 100
)

// paced limits the rate of the requests to the API server.
type paced struct {
	Objects
	limit flowcontrol.RateLimiter
}

func newPaced(o Objects) paced {
	return paced{o, flowcontrol.NewTokenBucketRateLimiter(requestsPerSecond, requestsBurst)}
}

func (p paced) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Objects.Claim(ctx, namespace, name)
}

func (p paced) Volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Objects.Volume(ctx, name)
}

func (p paced) Class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Objects.Class(ctx, name)
}

func (p paced) Pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Objects.Pods(ctx, namespace)
}

func (p paced) RunsDriver(ctx context.Context, node string) (bool, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return false, err
	}
	return p.Objects.RunsDriver(ctx, node)
}

func (p paced) Now(ctx context.Context, node string) (time.Time, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return time.Time{}, err
	}
	return p.Objects.Now(ctx, node)
}

func (p paced) Snapshots(ctx context.Context, namespace, node, volume string) ([]string, error) {
	if err := p.limit.Wait(ctx); err != nil {
		return nil, err
	}
	return p.Objects.Snapshots(ctx, namespace, node, volume)
}

func (p paced) CreateVolume(ctx context.Context, pv *corev1.PersistentVolume, dryRun bool) error {
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	return p.Objects.CreateVolume(ctx, pv, dryRun)
}

func (p paced) PatchVolume(ctx context.Context, pv *corev1.PersistentVolume, annotations map[string]any, policy corev1.PersistentVolumeReclaimPolicy, dropFinalizers bool) error {
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	return p.Objects.PatchVolume(ctx, pv, annotations, policy, dropFinalizers)
}

func (p paced) DeleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	return p.Objects.DeleteVolume(ctx, pv)
}

func (p paced) PatchClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim, subresource string, patch kubeclient.Patch) error {
	if err := p.limit.Wait(ctx); err != nil {
		return err
	}
	return p.Objects.PatchClaim(ctx, claim, subresource, patch)
}
