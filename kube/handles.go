package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// Two PersistentVolumes with one volume handle are one logical volume with two owners: an admin or a restore tool created
// the second. No change for one of them can be right for the other. The agent watches no PersistentVolumes, so it lists all
// of them before it extends a volume or selects the node of one for a clone. Before the driver deletes a volume, owners.go
// does so without this cache.

// handlesGoodFor is the lifetime of one list: a burst of expansions shares it.
const handlesGoodFor = 10 * time.Second

// handleIndex caches which volume handles several PersistentVolumes share.
type handleIndex struct {
	client *kubeclient.Client
	turn   chan struct{}       // has a token while a goroutine uses the fields below
	read   time.Time           // when the last list began
	shared map[string][]string // names of the PersistentVolumes, two or more, by handle
}

func newHandleIndex(client *kubeclient.Client) *handleIndex {
	return &handleIndex{client: client, turn: make(chan struct{}, 1)}
}

// sharing returns the names of the PersistentVolumes that share the handle, if there are several.
func (h *handleIndex) sharing(ctx context.Context, handle string) ([]string, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if began := time.Now(); h.read.IsZero() || began.Sub(h.read) >= handlesGoodFor {
		shared, err := h.client.SharedHandles(ctx)
		if err != nil {
			return nil, err
		}
		h.read, h.shared = began, shared
	}
	return h.shared[handle], nil
}

// sharedHandleError says that another PersistentVolume has the same handle.
type sharedHandleError struct{ error }

// checkHandle returns a sharedHandleError if another PersistentVolume has the volume's handle. Other errors are the API
// server's.
func (a *Agent) checkHandle(ctx context.Context, pv *corev1.PersistentVolume) error {
	sharing, err := a.handles.sharing(ctx, pv.Spec.CSI.VolumeHandle)
	if err != nil {
		return fmt.Errorf("cannot determine whether another PersistentVolume has the volume handle of %s: %w", pv.Name, err)
	}
	if shared := kubeclient.Placed(pv, a.node, sharing...); shared != nil {
		return sharedHandleError{shared}
	}
	return nil
}
