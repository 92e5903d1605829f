package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
)

// TrimInterval returns the trim interval of the claim that is bound to a PersistentVolume, or else of its storage class; "": none.
func (a *Agent) TrimInterval(volume string) string {
	_, own, found := a.claims.boundTo(volume)
	if !found {
		return ""
	}
	if own.trim != "" {
		return own.trim
	}
	class, found, _ := a.classes.Find(own.class)
	if !found {
		return ""
	}
	return class.Annotations[api.AnnotationTrimInterval]
}

// ReportTrimFailed writes an event on the claim that is bound to a PersistentVolume.
func (a *Agent) ReportTrimFailed(ctx context.Context, volume, message string) {
	claim, own, found := a.claims.boundTo(volume)
	if !found {
		return
	}
	namespace, name := kubeclient.ClaimKey(claim)
	err := a.events.Record(ctx, kubeclient.Event{About: kubeclient.AboutClaim(namespace, name, own.uid), Kind: corev1.EventTypeWarning,
		Reason: api.ReasonTrimFailed, Message: message})
	if err != nil && ctx.Err() == nil {
		a.log.WarnContext(ctx, "cannot write an event", "claim", claim, "reason", api.ReasonTrimFailed, "error", err)
	}
}
