package kube

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/pending"
)

// The kubelet registers a driver once: it adds the driver to the node's CSINode and the topology label to the Node. If a program removes
// either, nothing sets it again, and the scheduler places no pod with a volume of this driver there. So the driver checks both, registers again, and reports what
// that does not repair.

const (
	registrationFirst = time.Minute      // After the start: the kubelet registers the driver meanwhile.
	registrationEvery = 10 * time.Minute // A check is two requests.
)

// registration is what the last checks have found.
type registration struct {
	problem  string // "": none
	reported bool   // by an event
}

// watchRegistration checks the driver's registration until ctx ends.
func (a *Agent) watchRegistration(ctx context.Context) {
	if a.register == nil {
		return
	}
	var was registration
	kubeclient.Sleep(ctx, wait.Jitter(registrationFirst, 1))
	for ctx.Err() == nil {
		now, err := a.checkRegistration(ctx, was)
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "cannot check the registration of the driver", "error", err)
		}
		next := registrationEvery
		if now.problem != "" && !now.reported {
			next = registrationFirst // has it been repaired?
		}
		was = now
		kubeclient.Sleep(ctx, wait.Jitter(next, 0.2))
	}
}

// checkRegistration registers the driver again if its registration is incomplete. If it already was at the last check, an event on the
// node says so.
func (a *Agent) checkRegistration(ctx context.Context, was registration) (now registration, err error) {
	node, err := a.client.Node(ctx, a.node)
	if err != nil || node == nil {
		return was, err // a deleted Node has no label to set
	}
	csi, err := a.client.CSINode(ctx, a.node)
	if err != nil {
		return was, err
	}
	event := kubeclient.Event{About: kubeclient.AboutNode(a.node), Kind: corev1.EventTypeWarning, Reason: api.ReasonDriverNotRegistered}
	now.problem = pending.RegistrationProblem(node, csi)
	switch {
	case now.problem == "" && !was.reported:
		return now, nil
	case now.problem == "":
		event.Kind, event.Message = corev1.EventTypeNormal, "Resolved: "+was.problem
		return now, a.events.Record(ctx, event)
	case was.problem == "":
		a.log.WarnContext(ctx, "registering again with the kubelet", "node", a.node, "because", now.problem)
		return now, a.register()
	}
	now.reported = true
	event.Message = fmt.Sprintf("%s: the scheduler places no pod with a volume of %s on this node. The driver has registered again with the kubelet, and that did not help. "+
		"Set the label: kubectl label node %s --overwrite %s=%s. If CSINode %s lacks the driver, see the kubelet's log", now.problem, api.DriverName, a.node, api.TopologyKey, a.node, a.node)
	return now, a.events.Record(ctx, event)
}
