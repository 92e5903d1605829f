package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/iolimit"
	"github.com/nodelvm/nodelvm/node/mount"
)

// ioLimits are the limits of the volumes' I/O; without a Limiter the driver sets none.
type ioLimits struct {
	*iolimit.Limiter
	mu       sync.Mutex
	problems map[lvm.ID]string   // why the limits of a volume are not set
	known    map[lvm.ID]recorded // so that NodePublishVolume need not read the records
	changes  int                 // of records, which a reading that began earlier may lack
}

// recorded are the limits in the record of a volume, perhaps none.
type recorded struct {
	uuid  string // of the volume: another one can get its handle
	rates lvm.Rates
}

// knownOf returns the limits of a volume, if its record cannot have changed since it was read.
func (l *ioLimits) knownOf(id lvm.ID, uuid string) (_ lvm.Rates, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, known := l.known[id]
	return of.rates, known && uuid != "" && of.uuid == uuid
}

// changed notes that the record of a volume may have changed. It returns the number of changes.
func (l *ioLimits) changed(id lvm.ID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	delete(l.known, id)
	return l.changes
}

// note remembers the limits of volumes, from a reading that began when there had been so many changes; all: the node has no others.
func (l *ioLimits) note(since int, all bool, volumes ...lvm.Volume) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changes != since {
		return
	}
	if all || l.known == nil {
		l.known = make(map[lvm.ID]recorded, len(volumes))
	}
	for _, v := range volumes {
		l.known[v.ID] = recorded{v.UUID, v.Rates()}
	}
}

func (l *ioLimits) changesNow() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changes
}

// ReadLimits begins a reading of a volume's record. The function that it returns remembers the limits that were read, unless a record has changed
// meanwhile.
func (s *Server) ReadLimits() func(lvm.Volume) {
	since := s.limits.changesNow()
	return func(v lvm.Volume) { s.limits.note(since, false, v) }
}

// cgroupPatience is how long NodePublishVolume waits for the pod's cgroup. Then the kubelet repeats the call.
const cgroupPatience = 3 * time.Second

// limitPod sets the limits of a volume in the cgroup of the pod that is about to get it. The caller keeps the device open. lvm.KindBusy: the
// pod has no cgroup yet. A pod starts without limits, and the volume has a condition, if this node cannot set them or the volume's record
// cannot be read.
func (s *Server) limitPod(ctx context.Context, r publishRequest, device mount.DeviceNumber) error {
	if s.limits.Limiter == nil {
		return nil
	}
	rates, known := s.limits.knownOf(r.id, r.uuid)
	if !known {
		note := s.ReadLimits()
		v, err := s.devices.Lookup(ctx, r.id)
		if err != nil {
			return nil //nolint:nilerr // a pod starts although its volume's group cannot be read; CheckLimits sets its limits later
		}
		note(v)
		rates = v.Rates()
	}
	if rates == (lvm.Rates{}) {
		return nil
	}
	pod := iolimit.PodOf(r.target)
	if pod == "" {
		return nil
	}
	err := s.limits.Set(pod, uint64(device), rates)
	if lvm.KindOf(err) == lvm.KindNotFound {
		if err = s.limits.Wait(ctx, pod, cgroupPatience); err == nil {
			err = s.limits.Set(pod, uint64(device), rates)
		}
	}
	if kind := lvm.KindOf(err); kind == lvm.KindBusy || kind == lvm.KindNotFound {
		return lvm.Errorf(lvm.KindBusy, "%w", err)
	}
	s.noteLimits(ctx, r.id, err)
	return nil
}

// endLimits removes the limits of what is about to be unmounted: of the pod's device at a pod's path, else, when no pod uses the volume any
// more, of the device in all cgroups. The unmount writes what the pods have made dirty. A pod ends whatever the state of its cgroup is.
func (s *Server) endLimits(info mount.PathInfo) {
	if s.limits.Limiter == nil {
		return
	}
	pod, device := iolimit.PodOf(info.Path), uint64(info.MountedDevice())
	if pod == "" {
		s.limits.Release(device)
		return
	}
	if err := s.limits.Set(pod, device, lvm.Rates{}); err != nil && lvm.KindOf(err) != lvm.KindNotFound {
		s.log.Warn("cannot remove the I/O limits of a pod's volume; its unmount may be slow", "path", info.Path, "error", err)
	}
}

// CanLimit returns an error (lvm.KindConflict) if this node cannot limit I/O, or the driver does not.
func (s *Server) CanLimit() error {
	if s.limits.Limiter == nil {
		return lvm.Errorf(lvm.KindConflict, "the driver does not limit I/O on this node: it runs without --io-limits (the chart's value ioLimits.enabled)")
	}
	return s.limits.Check()
}

// ApplyLimits sets the limits that a volume's record has in the cgroups of the pods that use it, or removes those that it has no more.
// lvm.KindConflict: this node cannot limit I/O, or has that switched off; lvm.KindBusy: retry; lvm.KindNotFound, lvm.KindNotLocal: there is no such
// volume.
func (s *Server) ApplyLimits(ctx context.Context, id lvm.ID) error {
	if s.limits.Limiter == nil {
		return s.CanLimit()
	}
	changes := s.limits.changed(id)
	release, err := s.locks.lock(id.String()) // a pod that ends meanwhile would keep its limits
	if err != nil {
		return err
	}
	defer release()
	v, err := s.devices.Lookup(ctx, id)
	if err != nil {
		return err
	}
	s.limits.note(changes, false, v)
	err = s.applyLimits(ctx, v)
	s.noteLimits(ctx, id, err)
	return err
}

func (s *Server) applyLimits(ctx context.Context, v lvm.Volume) error {
	rates := v.Rates()
	if rates != (lvm.Rates{}) {
		if err := s.limits.Check(); err != nil {
			return err
		}
	}
	path, number, active := s.activeDevice(ctx, v)
	if !active {
		return nil
	}
	mounts, err := s.mounts.Mounts(path)
	if err != nil {
		return err
	}
	pods := podsAt(mounts)
	if rates == (lvm.Rates{}) {
		pods = append(pods, s.limits.Limited(uint64(number))...) // NodePublishVolume may have failed for one after it set the limits
	}
	var errs []error
	for _, pod := range pods {
		if err := s.limits.Set(pod, uint64(number), rates); lvm.KindOf(err) != lvm.KindNotFound { // NodePublishVolume waits for a cgroup
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// podsAt returns the pods whose paths these are.
func podsAt(mounts []mount.Point) (pods []string) {
	for _, m := range mounts {
		if pod := iolimit.PodOf(m.Path); pod != "" {
			pods = append(pods, pod)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// CheckLimits sets the limits of all volumes that pods use, where they are not set. It reads io.max once for each such pod. lvm.KindBusy: another
// operation on a volume was in flight; retry.
func (s *Server) CheckLimits(ctx context.Context) error {
	if s.limits.Limiter == nil {
		return nil
	}
	mounted, err := s.mounts.AllMounts()
	if err != nil {
		return err
	}
	changes := s.limits.changesNow()
	volumes, err := s.devices.List(ctx)
	if err != nil {
		return err
	}
	s.limits.note(changes, true, volumes...)
	now := map[string]map[uint64]lvm.Rates{} // the limits by pod and device
	var errs []error
	for _, v := range volumes {
		_, number, active := s.activeDevice(ctx, v)
		if !active { // no pod uses it
			s.noteLimits(ctx, v.ID, nil)
			continue
		}
		different := false
		for _, pod := range podsAt(mounted[number]) {
			limits, read := now[pod]
			if !read {
				limits, _ = s.limits.LimitsOf(pod) // ApplyLimits reports the error
				now[pod] = limits
			}
			different = different || limits[uint64(number)] != v.Rates()
		}
		if !different {
			s.noteLimits(ctx, v.ID, nil)
			continue
		}
		errs = append(errs, s.ApplyLimits(ctx, v.ID))
	}
	return errors.Join(errs...)
}

// PrepareCopy prepares a volume for a copy by LVM: see SyncBeforeCopy and LiftLimits.
func (s *Server) PrepareCopy(ctx context.Context, id lvm.ID) (end func(), err error) {
	return s.prepare(ctx, id, s.SyncBeforeCopy)
}

// PrepareGroupCopy is PrepareCopy for a volume of a group snapshot: see SyncBeforeGroupSnapshot.
func (s *Server) PrepareGroupCopy(ctx context.Context, id lvm.ID) (end func(), err error) {
	return s.prepare(ctx, id, s.SyncBeforeGroupSnapshot)
}

func (s *Server) prepare(ctx context.Context, id lvm.ID, sync func(context.Context, lvm.ID) error) (end func(), err error) {
	if end, err = s.LiftLimits(ctx, id); err != nil {
		return nil, err
	}
	if err := sync(ctx, id); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// LiftLimits removes the limits of a volume that is about to be copied, and writes its dirty data to the disks: LVM would wait for both, and
// hold the lock of the group. end sets the limits again. If the driver is killed before, CheckLimits does. A volume without limits, or one
// that is not in use here, is not touched. lvm.KindBusy: retry.
func (s *Server) LiftLimits(ctx context.Context, id lvm.ID) (end func(), err error) {
	nothing := func() {}
	if s.limits.Limiter == nil {
		return nothing, nil
	}
	v, path, block, err := s.deviceOf(ctx, id)
	if lvm.KindOf(err) == lvm.KindNotFound {
		return nothing, nil // as in SyncBeforeCopy
	}
	if err != nil || v.Rates() == (lvm.Rates{}) {
		return nothing, err
	}
	mounts, err := s.mounts.Mounts(path)
	if err != nil {
		return nothing, err
	}
	lifted := s.limits.Lift(uint64(block.Number), podsAt(mounts))
	end = func() {
		lifted()
		s.limitAgain(context.WithoutCancel(ctx), id)
	}
	mounted, err := s.mounted.FileSystems()
	if err == nil && len(writable(mounted[block.Number])) > 0 {
		err = s.syncMounted(ctx, id, writable(mounted[block.Number]))
	}
	if err != nil {
		end()
		return nothing, err
	}
	return end, nil
}

// withoutLimits runs what suspends the device of a volume, which would wait for the dirty data of its pods at their rate. The caller holds the
// volume's lock.
func (s *Server) withoutLimits(ctx context.Context, v lvm.Volume, path string, number mount.DeviceNumber, do func() error) error {
	if s.limits.Limiter == nil || v.Rates() == (lvm.Rates{}) {
		return do()
	}
	mounts, err := s.mounts.Mounts(path)
	if err != nil {
		return err
	}
	end := s.limits.Lift(uint64(number), podsAt(mounts))
	err = do()
	end()
	s.noteLimits(ctx, v.ID, s.applyLimits(ctx, v))
	return err
}

// limitAgain sets the limits of a volume after a copy. While another operation on the volume is in flight it retries in the background, and
// then leaves it to CheckLimits.
func (s *Server) limitAgain(ctx context.Context, id lvm.ID) {
	const attempts, pause = 20, 250 * time.Millisecond
	if lvm.KindOf(s.ApplyLimits(ctx, id)) != lvm.KindBusy {
		return
	}
	go func() {
		for range attempts {
			time.Sleep(pause)
			if lvm.KindOf(s.ApplyLimits(ctx, id)) != lvm.KindBusy {
				return
			}
		}
	}()
}

// noteLimits remembers whether the limits of a volume are set. What is retried soon is no problem.
func (s *Server) noteLimits(ctx context.Context, id lvm.ID, err error) {
	l := &s.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		delete(l.problems, id)
	case lvm.KindOf(err) != lvm.KindBusy && l.problems[id] != err.Error():
		if l.problems == nil {
			l.problems = map[lvm.ID]string{}
		}
		l.problems[id] = err.Error()
		s.log.WarnContext(ctx, "cannot set the I/O limits of a volume", "volume", id.String(), "error", err)
	}
}

// conditions returns the volumes whose limits are not set, of those that exist.
func (l *ioLimits) conditions(volumes []lvm.Volume) (found []lvm.Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := maps.Clone(l.problems)
	for _, v := range volumes {
		problem := l.problems[v.ID]
		if v.LimitsProblem != "" {
			problem = v.LimitsProblem
		}
		if problem != "" && l.Limiter != nil {
			found = append(found, lvm.Condition{Type: lvm.ConditionIOLimitsNotSet, Group: v.Group, Volume: v,
				Text: "the I/O limits of its VolumeAttributesClass are not set on this node: " + problem})
		}
		delete(left, v.ID)
	}
	for id := range left {
		delete(l.problems, id)
	}
	return found
}
