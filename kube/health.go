package kube

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/lvm"
)

// healthPeriod is how often health is asked for.
const healthPeriod = 30 * time.Second

// trouble names a finding as long as it lasts; its text may change meanwhile.
type trouble struct {
	what   lvm.Trouble
	group  string
	volume string // UUID of the LV; "" for the whole group
}

func troubleOf(f lvm.Finding) trouble { return trouble{f.Trouble, f.Group, f.Volume.UUID} }

// watchHealth tells of trouble when it begins and when it has ended, until ctx ends.
func (a *Agent) watchHealth(ctx context.Context) {
	known := map[trouble]lvm.Finding{}
	ticker := time.NewTicker(healthPeriod)
	defer ticker.Stop()
	for ctx.Err() == nil {
		a.backoff.GC()
		a.reminders.GC()
		a.claims.forgetCalls()
		if a.health != nil {
			if found, err := a.health(ctx); err == nil {
				a.tellHealth(ctx, known, found)
			} else if ctx.Err() == nil {
				a.log.WarnContext(ctx, "the volumes' health cannot be told", "error", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// tellHealth tells what is new in found and what is no longer there, and brings known up to date. What could not be told
// is told the next time.
func (a *Agent) tellHealth(ctx context.Context, known map[trouble]lvm.Finding, found []lvm.Finding) {
	now := map[trouble]lvm.Finding{}
	for _, f := range found {
		now[troubleOf(f)] = f
	}
	for t, f := range now {
		if _, told := known[t]; !told && a.tellFinding(ctx, f, false) {
			known[t] = f
		}
	}
	for t, f := range known {
		if _, lasts := now[t]; !lasts && a.tellFinding(ctx, f, true) {
			delete(known, t)
		}
	}
}

func (a *Agent) tellFinding(ctx context.Context, f lvm.Finding, ended bool) bool {
	n := news{a.concerned(f), corev1.EventTypeWarning, reasonOf(f), f.Text}
	switch {
	case ended:
		n.kind, n.reason, n.message = corev1.EventTypeNormal, reasonOf(f)+"Ended", "it is over: "+f.Text
	case f.Trouble == lvm.TroubleRebuilding:
		n.kind = corev1.EventTypeNormal
	}
	if err := a.events.tell(ctx, n); err != nil {
		a.log.WarnContext(ctx, "an event could not be written", "reason", n.reason, "about", n.about.Name, "error", err)
		return false
	}
	return true
}

// reasonOf makes the word of a trouble: VolumePoolFull, GroupMissing.
func reasonOf(f lvm.Finding) string {
	reason := "Volume"
	if f.Volume.UUID == "" {
		reason = "Group"
	}
	for _, word := range strings.Split(string(f.Trouble), "-") {
		reason += strings.ToUpper(word[:1]) + word[1:]
	}
	return reason
}

// concerned is the claim that is bound to the finding's volume or, for a whole group, the node. csi-provisioner gives the
// PersistentVolume the volume's name, and the volume the claim's UID; a claim that the volume was bound to later is found
// by the PersistentVolume.
func (a *Agent) concerned(f lvm.Finding) corev1.ObjectReference {
	if f.Volume.UUID == "" {
		return aboutNode(a.node)
	}
	key, own, ok := a.claims.boundTo(f.Volume.Name)
	if !ok {
		key, own.uid = f.Volume.Claim, types.UID(strings.TrimPrefix(f.Volume.Name, "pvc-"))
	}
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		return aboutNode(a.node) // a volume without a claim
	}
	return aboutClaim(namespace, name, own.uid)
}
