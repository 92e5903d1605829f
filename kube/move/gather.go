package move

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/move"
	"github.com/nodelvm/nodelvm/pending"
)

// gather reads what a decision needs.
func (a *Agent) gather(ctx context.Context, u unit) (*view, error) {
	locals, err := a.engine.Volumes(ctx)
	if err != nil {
		return nil, err
	}
	v := &view{node: a.node, now: a.now(), key: a.engine.Key()}
	if u.claim == "" {
		pv, err := a.objects.Volume(ctx, u.volume)
		if err != nil {
			return nil, err
		}
		if pv != nil && pv.Spec.ClaimRef != nil {
			u.namespace, u.claim = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
		}
	}
	if v.claim, err = a.objects.Claim(ctx, u.namespace, u.claim); err != nil {
		return nil, err
	}
	if u.volume == "" {
		if v.claim == nil || v.claim.Spec.VolumeName == "" {
			return v, nil
		}
		u.volume = v.claim.Spec.VolumeName
	}
	if v.local, v.rec = localOf(locals, u.volume); v.local == nil && wants(v.claim) != a.node {
		return v, nil // not of this node
	}
	if v.pv, err = a.objects.Volume(ctx, u.volume); err != nil {
		return nil, err
	}
	// Once more, after the PersistentVolume: csi-provisioner deletes the volume first. So a volume that is there without one is not being deleted.
	if locals, err = a.engine.Volumes(ctx); err != nil {
		return nil, err
	}
	v.local, v.rec = localOf(locals, u.volume)
	if begins := v.local != nil && v.local.State == lvm.StateReady && v.rec == nil; !begins || v.claim == nil || u.volume != v.claim.Spec.VolumeName {
		v.claim = sameClaim(v.claim, u.volume) // else newRecord says that the claim's volume is not one that was created for it
	}
	a.mu.Lock()
	v.progress = a.progress[u.volume]
	a.mu.Unlock()
	return v, a.gatherSource(ctx, v, locals)
}

// localOf finds the volume of a PersistentVolume on this node.
func localOf(locals []Local, name string) (*Local, *Record) {
	i := slices.IndexFunc(locals, func(l Local) bool { return l.Name == name && l.State != lvm.StateDeleting })
	if i < 0 {
		return nil, nil
	}
	return &locals[i], parseRecord(locals[i].Record)
}

// sameClaim returns the claim if it has the volume that was created for it; nil: it is a later one of the same name.
func sameClaim(claim *corev1.PersistentVolumeClaim, volume string) *corev1.PersistentVolumeClaim {
	if claim == nil || volume != (&Record{UID: claim.UID}).name() || claim.Spec.VolumeName != volume {
		return nil
	}
	return claim
}

// gatherSource reads what only a source needs.
func (a *Agent) gatherSource(ctx context.Context, v *view, locals []Local) (err error) {
	if v.local == nil || v.rec != nil && v.rec.To == a.node || v.local.State == stateReceiving || v.local.State == stateReceived {
		return nil
	}
	begins := v.rec == nil && v.local.State == lvm.StateReady
	if begins && (wants(v.claim) == "" || wants(v.claim) == a.node) {
		return nil
	}
	var pods []corev1.Pod
	if v.local.State != stateMoving && v.claim != nil {
		if pods, err = a.objects.Pods(ctx, v.claim.Namespace); err != nil {
			return err
		}
		v.users = usersOf(pods, v.claim.Name)
	}
	switch {
	case begins:
		v.fresh, v.refused, err = a.mayBegin(ctx, v, pods)
		return err
	case v.rec == nil:
		return nil
	case v.local.State == lvm.StateReady:
		a.gatherRounds(ctx, v)
	case v.local.State == stateMoving:
		if offer, err := a.engine.Hold(ctx, v.local.ID, v.local.UUID); err != nil {
			v.held = err
		} else {
			v.offer = &offer
		}
	}
	if v.local.State == stateMoved {
		v.unmoved = slices.ContainsFunc(locals, func(l Local) bool {
			r := parseRecord(l.Record)
			return r != nil && l.State != stateMoved && r.From == a.node && r.Namespace == v.rec.Namespace && (slices.Contains(r.With, v.rec.Claim) || slices.Contains(v.rec.With, r.Claim))
		})
		if v.pv != nil && v.isUsedFor(a.grace) { // by this node's clock, which may be wrong
			v.now, err = a.objects.Now(ctx, a.node)
		}
		return err
	}
	v.members, err = a.membersOf(ctx, v, locals)
	return err
}

// gatherRounds reads what decides on the rounds of a volume that is ready.
func (a *Agent) gatherRounds(ctx context.Context, v *view) {
	v.alone = a.aloneNow(v.local.Name)
	newest := v.newest()
	if newest == nil {
		return
	}
	offer, err := a.engine.OfferRound(ctx, *v.local, newest.Move)
	switch {
	case err == nil:
		v.offer = &offer
	case errors.Is(err, move.ErrComparing):
	case lvm.KindOf(err) != lvm.KindBusy || v.user() == nil: // else the agent can wait as long as the pods run
		v.useless = err
	}
}

// membersOf reads the claims of a move: those that the record names, and those whose record names this one.
func (a *Agent) membersOf(ctx context.Context, v *view, locals []Local) (members []*member, err error) {
	names := append([]string{v.rec.Claim}, v.rec.With...)
	for i := range locals {
		r := parseRecord(locals[i].Record)
		if r != nil && r.Namespace == v.rec.Namespace && r.From == a.node && slices.Contains(r.With, v.rec.Claim) && !slices.Contains(names, r.Claim) {
			names = append(names, r.Claim)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		m, err := a.memberOf(ctx, v, locals, name)
		if err != nil {
			return nil, err
		}
		members = append(members, m)
	}
	return members, nil
}

func (a *Agent) memberOf(ctx context.Context, v *view, locals []Local, name string) (*member, error) {
	m := &member{name: name}
	claim, err := v.claim, error(nil)
	if name != v.rec.Claim {
		if claim, err = a.objects.Claim(ctx, v.rec.Namespace, name); err != nil {
			return nil, err
		}
	}
	for i := range locals {
		r := parseRecord(locals[i].Record)
		if r != nil && r.Namespace == v.rec.Namespace && r.Claim == name && r.From == a.node && locals[i].State != lvm.StateDeleting {
			m.local, m.rec = &locals[i], r
		}
	}
	if m.rec != nil {
		claim = sameClaim(claim, m.rec.name())
		if m.pv = v.pv; name != v.rec.Claim {
			if m.pv, err = a.objects.Volume(ctx, m.rec.name()); err != nil {
				return nil, err
			}
		}
	}
	m.cancelled = wants(claim) != v.rec.To
	m.bound = isBound(claim, m.pv)
	return m, nil
}

// usersOf are the pods that use a claim.
func usersOf(pods []corev1.Pod, claim string) (users []podUse) {
	for i := range pods {
		pod := &pods[i]
		if !pending.UsesClaim(pod, claim) {
			continue
		}
		u := podUse{name: pod.Name, node: pod.Spec.NodeName, ended: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed, deleted: pod.DeletionTimestamp != nil, stopped: isStopped(pod)}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Running != nil && pod.Status.Phase == corev1.PodRunning && (u.since.IsZero() || c.State.Running.StartedAt.Time.After(u.since)) {
				u.since = c.State.Running.StartedAt.Time
			}
		}
		if !u.since.IsZero() && u.since.Before(pod.CreationTimestamp.Time) { // by the clock of the pod's node
			u.since = pod.CreationTimestamp.Time
		}
		users = append(users, u)
	}
	return users
}

// isStopped reports whether a pod that ran has lost its sandbox, as after a reboot of its node. The kubelet then mounts its volumes again before it starts
// the containers, and no node may mount a parked one.
func isStopped(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionFalse
	})
}
