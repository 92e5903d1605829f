package kube

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/attributes"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// kindAttributes is the kind of a job that changes the attributes of a claim's volume. It is not KindClaim: an expansion that fails again
// and again must not delay the change, nor the change the expansion.
const kindAttributes = "attributes of the PersistentVolumeClaim"

// newModifier returns the part of the agent that changes the attributes of volumes; nil without limits.
func (a *Agent) newModifier(limits attributes.Limits) *attributes.Modifier {
	if limits == nil {
		return nil
	}
	return attributes.New(attributes.Config{Client: a.client, Node: a.node, Limits: limits, Events: a.events, Log: a.log, Check: a.checkHandle})
}

// wantsAttributes reports whether a bound claim asks for other attributes of its volume.
func (a *Agent) wantsAttributes(claim *corev1.PersistentVolumeClaim) bool {
	return a.modifier != nil && attributes.Wanted(claim)
}

// jobForAttributes finds the job for a claim that asks for other attributes of its volume.
func (a *Agent) jobForAttributes(object kubeclient.ObjectKey) (job, bool) {
	claim, ok := a.claims.waiting(object.Key)
	if !ok || !a.wantsAttributes(claim) {
		return job{}, false
	}
	id := string(claim.UID) + "/attributes"
	if name := claim.Spec.VolumeAttributesClassName; name != nil {
		id += "/" + *name
	}
	return job{id, func(ctx context.Context) (bool, error) {
		again, err := a.modifier.Modify(ctx, claim)
		if again > 0 {
			a.queue.AddAfter(object, again)
		}
		err = errors.Join(err, a.reportShared(ctx, claim, api.ReasonVolumeModifyFailed, "the volume's attributes are not changed", err))
		if apierrors.IsForbidden(err) {
			err = errors.Join(err, a.reportForbidden(ctx, claim, api.ReasonVolumeModifyFailed, err))
		}
		return again == 0, err
	}}, true
}
