package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
)

// healthPeriod is the interval of health checks.
const healthPeriod = 30 * time.Second

// watchHealth reports conditions when they begin, become worse or better, and when they are resolved, until ctx ends.
func (a *Agent) watchHealth(ctx context.Context) {
	known := map[condition]lvm.Condition{}
	ticker := time.NewTicker(healthPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a.backoff.GC()
		a.retries.GC()
		a.claims.forgetCalls()
		if a.health != nil {
			if err := errors.Join(a.lookForMissing(ctx), a.checkHealth(ctx, known)); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "cannot check the health of the volumes", "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// checkHealth checks for conditions once. While a condition is known, it reads before and after the check which volumes and
// groups are visible: one that appears or disappears in between must not count as healthy.
func (a *Agent) checkHealth(ctx context.Context, known map[condition]lvm.Condition) error {
	var seen []lvm.HealthScope
	observe := func() error {
		if len(known) == 0 || a.scope == nil {
			return nil
		}
		o, err := a.scope(ctx)
		seen = append(seen, o)
		return err
	}
	if err := observe(); err != nil {
		return err
	}
	found, err := a.health(ctx)
	if err != nil {
		return err
	}
	if err := observe(); err != nil {
		return err
	}
	a.reportConditions(ctx, known, found, seen)
	return nil
}

// reportConditions reports the changes and updates known. It leaves a change that it could not report for the next check.
func (a *Agent) reportConditions(ctx context.Context, known map[condition]lvm.Condition, found []lvm.Condition, seen []lvm.HealthScope) {
	bound := func(v lvm.Volume) bool {
		if _, _, is := a.claims.boundTo(v.Name); !is {
			return false
		}
		_, err := a.volumes.Lookup(ctx, v.ID)
		return isMissing(err) // one that moves to another node is there, and has no conditions
	}
	for _, c := range changes(known, found, seen, bound) {
		n, reported := a.eventOf(c)
		if reported && !a.recordEvent(ctx, n) {
			continue
		}
		switch c.what {
		case conditionUnknown:
		case conditionNew:
			known[conditionOf(c.now)] = c.now
		default:
			delete(known, conditionOf(c.was))
		}
	}
	for _, f := range found {
		if was, found := known[conditionOf(f)]; found && !f.MustRepeat(was) {
			known[conditionOf(f)] = f // its text may have changed
		}
	}
}

// eventOf returns the event for a change; false: there is none.
func (a *Agent) eventOf(c change) (n kubeclient.Event, reported bool) {
	warning, normal := corev1.EventTypeWarning, corev1.EventTypeNormal
	switch c.what {
	case conditionNew:
		if c.now.Type.Severity() == lvm.SeverityInfo {
			return kubeclient.Event{About: a.concerned(c.now), Kind: normal, Reason: string(c.now.Type), Message: c.now.Text}, true
		}
		return kubeclient.Event{About: a.concerned(c.now), Kind: warning, Reason: string(c.now.Type), Message: c.now.Text}, true
	case conditionWorsened:
		return kubeclient.Event{About: a.concerned(c.was), Kind: warning, Reason: string(c.was.Type) + "Worsened", Message: "Worse: " + c.now.Text}, true
	case conditionImproved:
		return kubeclient.Event{About: a.concerned(c.was), Kind: normal, Reason: string(c.was.Type) + "Improved", Message: "Better, but not resolved: " + c.now.Text}, true
	case conditionResolved:
		return kubeclient.Event{About: a.concerned(c.was), Kind: normal, Reason: string(c.was.Type) + "Resolved", Message: "Resolved: " + c.was.Text}, true
	case conditionDestroyed:
		return kubeclient.Event{About: a.concerned(c.was), Kind: warning, Reason: api.ReasonVolumeNotFound, Message: fmt.Sprintf(
			"volume %s is no longer in volume group %s on node %s, although this claim is bound to it: its data is lost unless there is a backup. Previous condition: %s",
			c.was.Volume.ID, c.was.Group, a.node, c.was.Text)}, true
	case conditionDropped, conditionUnknown:
	}
	return kubeclient.Event{}, false
}

func (a *Agent) recordEvent(ctx context.Context, n kubeclient.Event) bool {
	if err := a.events.Record(ctx, n); err != nil {
		a.log.WarnContext(ctx, "cannot write an event", "reason", n.Reason, "about", n.About.Name, "error", err)
		return false
	}
	return true
}

// concerned returns the claim that is bound to the condition's volume or, for a whole group, the node. csi-provisioner
// derives the names of PersistentVolume and volume from the claim's UID; the PersistentVolume leads to a claim that was
// bound later.
func (a *Agent) concerned(f lvm.Condition) corev1.ObjectReference {
	if f.Volume.UUID == "" {
		return kubeclient.AboutNode(a.node)
	}
	key, own, ok := a.claims.boundTo(f.Volume.Name)
	if !ok {
		key, own.uid = f.Volume.Claim, types.UID(strings.TrimPrefix(f.Volume.Name, api.PrefixVolume))
	}
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return kubeclient.AboutNode(a.node) // a volume without a claim
	}
	return kubeclient.AboutClaim(namespace, name, own.uid)
}
