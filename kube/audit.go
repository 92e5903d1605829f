package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
	"github.com/nodelvm/nodelvm/report"
)

// auditSoon is the interval of audits while a volume is missing.
const auditSoon = time.Minute

// auditPause limits the request rate of an audit of many volumes, so that it does not delay other requests.
const auditPause = 200 * time.Millisecond

// audit is the result of comparing the node's disks with the cluster.
type audit struct {
	search   OrphanSearch
	every    time.Duration
	reported map[report.Reason]string // the volumes in the last event of each kind
	lost     bool                     // the last audit found claims whose volume is not on this node: the next one follows after auditSoon

	mu      sync.Mutex
	orphans []Orphan
	ended   time.Time // end of the last comparison that succeeded; zero: there was none
	failed  error     // error of a later comparison
}

func newAudit(cfg Config) audit {
	every := cmp.Or(cfg.AuditEvery, time.Hour)
	return audit{
		search: OrphanSearch{Client: cfg.Client, Holdings: cfg.Holdings, Pause: min(auditPause, every/100)},
		every:  every, reported: map[report.Reason]string{},
	}
}

// Comparison returns the result of the last audit for the status document.
func (a *Agent) Comparison() *report.Comparison {
	a.audit.mu.Lock()
	defer a.audit.mu.Unlock()
	c := &report.Comparison{Time: a.audit.ended, Unreferenced: Published(a.audit.orphans)}
	if a.audit.failed != nil {
		c.Error = a.audit.failed.Error()
	}
	return c
}

// keep records the result of a search.
func (a *audit) keep(orphans []Orphan, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed = err; err == nil {
		a.orphans, a.ended = orphans, time.Now().UTC()
	}
}

// watchOrphans audits soon after the start and then every AuditEvery, with jitter, until ctx ends.
func (a *Agent) watchOrphans(ctx context.Context) {
	if a.audit.search.Holdings == nil {
		return
	}
	kubeclient.Sleep(ctx, wait.Jitter(a.audit.every/120, 4))
	for ctx.Err() == nil {
		if err := a.auditOnce(ctx); err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "cannot compare the volumes on the disks with the cluster", "error", err)
		}
		next := a.audit.every
		if a.audit.lost {
			next = min(next, auditSoon) // a volume that returns must not count as lost
		}
		kubeclient.Sleep(ctx, wait.Jitter(next, 0.2))
	}
}

func (a *Agent) auditOnce(ctx context.Context) error {
	orphans, pvs, err := a.audit.search.Find(ctx)
	a.audit.keep(orphans, err)
	if err != nil {
		return err
	}
	for _, pv := range pvs {
		if err := a.notLost(ctx, pv); err != nil {
			return err
		}
	}
	if err := a.adoptClaims(ctx, pvs); err != nil {
		return err
	}
	for _, pv := range pvs {
		a.rememberUnchosen(pv)
	}
	return cmp.Or(a.lookForLost(ctx, pvs), a.reportOrphans(ctx, orphans))
}

// notLost removes the annotations of a loss: this node and the volume are present. nodelvm-controller then reports the return on the claim.
func (a *Agent) notLost(ctx context.Context, pv *corev1.PersistentVolume) error {
	if !pending.IsOn(pv, a.node) || pv.Annotations[api.AnnotationLostSince] == "" && pv.Annotations[api.AnnotationVolumeGroupLostSince] == "" {
		return nil
	}
	a.log.InfoContext(ctx, "a volume recorded as lost is on this node again", "volume", pv.Name)
	return kubeclient.UnlessConflict(a.client.Annotate(ctx, pv, map[string]any{api.AnnotationLostSince: nil, api.AnnotationVolumeGroupLostSince: nil}))
}

// lookForLost finds the bound claims of this node whose volume is not on its disks. It does nothing unless every disk is
// readable. A claim that takes no event, as in a namespace that is being deleted, stops no other.
func (a *Agent) lookForLost(ctx context.Context, found []*corev1.PersistentVolume) error {
	holdings, err := a.audit.search.Holdings(ctx)
	if err != nil || len(holdings.Unread) > 0 {
		return err
	}
	a.audit.lost = false
	var refused error // the first
	for key, own := range a.claims.onDisks() {
		if slices.ContainsFunc(found, func(pv *corev1.PersistentVolume) bool { return pv.Name == own.volume }) {
			continue
		}
		kubeclient.Sleep(ctx, a.audit.search.Pause)
		pv, err := a.client.Volume(ctx, own.volume)
		if err != nil {
			return err
		}
		if pv == nil || kubeclient.Chain(pv, own.claim(key), a.node) != nil {
			continue
		}
		id, err := lvm.ParseID(pv.Spec.CSI.VolumeHandle)
		if err != nil || slices.ContainsFunc(holdings.Owned, func(o lvm.ManagedVolume) bool { return o.ID == id }) {
			continue
		}
		if _, err := a.volumes.Lookup(ctx, id); !isMissing(err) {
			continue // the volume is new, or present and unreadable
		}
		a.audit.lost = true
		refused = cmp.Or(refused, a.reportMissing(ctx, key, own, pv, holdings.Groups[id.VG]))
	}
	return refused
}

// isMissing reports whether a lookup has proved that a volume does not exist.
func isMissing(err error) bool {
	there, unknown := found(err)
	return !there && unknown == nil
}

// reportMissing writes an event on a claim whose volume is not on the disks. If the whole volume group is missing, it
// annotates the PersistentVolume for nodelvm-controller.
func (a *Agent) reportMissing(ctx context.Context, key string, own ownClaim, pv *corev1.PersistentVolume, groupIsHere bool) error {
	group := "its volume group" // a pre-provisioned PersistentVolume may not name it
	if name := pv.Spec.CSI.VolumeAttributes[api.AttributeVolumeGroup]; name != "" {
		group = "volume group " + name
	}
	n := kubeclient.Event{Reason: api.ReasonVolumeNotFound, Message: fmt.Sprintf(
		"volume %s is no longer in %s on node %s: an admin or a program removed it. Its data is lost unless there is a backup. "+
			"To start with an empty volume, delete this claim", pv.Spec.CSI.VolumeHandle, group, a.node)}
	if !groupIsHere {
		n = kubeclient.Event{Reason: api.ReasonVolumeGroupLost, Message: fmt.Sprintf(
			"%s (%s) is no longer on node %s, and this claim's data was on it: reconnect its disks. If they are lost, delete this claim, the other lost claims of its pod, and the pod; a StatefulSet or an operator then creates them again, empty",
			group, pv.Spec.CSI.VolumeHandle, a.node)}
		if pv.Annotations[api.AnnotationVolumeGroupLostSince] == "" {
			if err := a.client.Annotate(ctx, pv, map[string]any{api.AnnotationVolumeGroupLostSince: time.Now().UTC().Format(time.RFC3339)}); kubeclient.UnlessConflict(err) != nil {
				return err
			}
		}
	}
	namespace, name := kubeclient.ClaimKey(key)
	n.About, n.Kind = kubeclient.AboutClaim(namespace, name, own.uid), corev1.EventTypeWarning
	return a.events.Record(ctx, n)
}

// reportOrphans writes an event on the node for each kind of orphan whose list has changed.
func (a *Agent) reportOrphans(ctx context.Context, orphans []Orphan) error {
	for _, kind := range report.Reasons {
		var size lvm.Bytes
		names := map[string]bool{}
		for _, o := range orphans {
			if o.Reason == kind {
				size += o.Size
				names[string(o.Group)+"/"+o.ID.LV] = true
			}
		}
		list := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
		if list == "" || a.audit.reported[kind] == list {
			a.audit.reported[kind] = list
			continue
		}
		n := kubeclient.Event{About: kubeclient.AboutNode(a.node), Kind: corev1.EventTypeWarning}
		what := fmt.Sprintf("%s (%d, %s in total). The driver does not remove them: nodelvm orphans lists them, nodelvm adopt "+
			"prints the objects to use one again, lvremove frees its space and zeroes nothing", cut(list), len(names), size)
		switch kind {
		case report.ReasonUnreferenced:
			n.Reason, n.Message = api.ReasonUnreferencedVolumes, "no object of this cluster refers to "+what
		case report.ReasonAbandoned:
			n.Reason, n.Message = api.ReasonAbandonedVolumes, "the driver keeps volumes whose claims no longer use them: "+what
		case report.ReasonOtherCluster:
			n.Reason, n.Message = api.ReasonOtherClusterVolumes, "another cluster created "+what
		}
		a.log.WarnContext(ctx, n.Message, "reason", n.Reason)
		if err := a.events.Record(ctx, n); err != nil {
			return err
		}
		a.audit.reported[kind] = list
	}
	return nil
}

// cut keeps an event's message below messageMax.
func cut(list string) string {
	const most = 500
	if len(list) > most {
		return list[:most] + ", ..."
	}
	return list
}
