package host

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/oplock"
	"github.com/nodelvm/nodelvm/lvm/internal/reserve"
)

// creating identifies a Create request among the operations in flight.
type creating struct{ spec lvm.Spec }

// Create creates a volume, or finds the one that an equal request created. An existing volume takes no LVM process. A new one
// takes one, and later a share of one that tags several volumes as ready; one more if a thin pool must be created or extended,
// and one more for a snapshot or clone. KindExists: another volume has the name; KindInsufficientCapacity: this node cannot
// hold the volume now; KindInvalid, KindOutOfRange: no node ever can; KindBusy: retry.
func (h *Host) Create(ctx context.Context, spec lvm.Spec) (lvm.Volume, error) {
	return h.CreateWithPeers(ctx, spec, nil)
}

// CreateWithPeers is Create for a volume that a pod needs together with its other volumes. If all of them fit, it creates this
// one and reserves the capacity of the peers for KeepReserved, or until they are created or refused. If not, it creates nothing
// and returns KindInsufficientCapacity; it then refuses the peers' requests too, whether in flight or within the next seconds.
func (h *Host) CreateWithPeers(ctx context.Context, spec lvm.Spec, siblings []lvm.Spec) (lvm.Volume, error) {
	spec, err := lvm.CheckSpec(spec)
	if err != nil {
		return lvm.Volume{}, err
	}
	return oplock.Do(ctx, &h.operations, lvm.LVName(spec.Name), creating{spec}, func(ctx context.Context) (lvm.Volume, error) {
		return h.create(ctx, reserve.NewRequest(spec, siblings))
	})
}

// errChanged: the plan no longer holds, because another program changed the groups, or because the driver removed an obstacle.
var errChanged = errors.New("the volume groups changed meanwhile")

// createAttempts bounds how often create plans: again after a leftover, and after an admin's commands in between.
const createAttempts = 5

// planAgain repeats create, which plans and runs the plan, until its plan holds.
func planAgain[T any](what string, create func() (T, error)) (T, error) {
	for range createAttempts {
		if created, err := create(); !errors.Is(err, errChanged) {
			return created, err
		}
	}
	var none T
	return none, lvm.Errorf(lvm.KindBusy, "%s: another program keeps changing the volume groups of this node; retry", what)
}

// Reserve checks as Fits that this node can hold a volume and its peers, and reserves their capacity as CreateWithPeers does: for a full copy, whose logical
// volume Receive creates later.
func (h *Host) Reserve(ctx context.Context, spec lvm.Spec, siblings []lvm.Spec) error {
	p := reserve.NewRequest(spec, siblings)
	_, mine, err := h.plan(ctx, p, false)
	if err != nil || mine.Create == nil {
		return err
	}
	unlock, err := h.engine.Locks.Acquire(ctx, mine.Create.Group.UUID, "reserving capacity for volume "+spec.Name)
	if err != nil {
		return err
	}
	defer unlock()
	_, _, err = h.plan(ctx, p, true)
	return err
}

func (h *Host) create(ctx context.Context, p reserve.Request) (v lvm.Volume, err error) {
	leave := h.reserved.Enter(p.Spec)
	defer func() { leave(err) }()
	return planAgain(fmt.Sprintf("volume %q", p.Spec.Name), func() (lvm.Volume, error) {
		m, err := h.tryCreate(ctx, p)
		if err == nil && m.State == lvm.StateZeroing {
			m.Volume, err = h.zeroNew(ctx, m)
		}
		return m.Volume, err
	})
}

// tryCreate plans under the lock of the group that served the class last. If another operation holds that lock, or no group is
// known, it first plans without a lock: that suffices for a volume that exists, and for a refusal.
func (h *Host) tryCreate(ctx context.Context, p reserve.Request) (created, error) {
	what := "creating volume " + p.Spec.Name
	guess, _ := h.groups.Load(p.Spec.Class.Group)
	group, _ := guess.(lvm.VGUUID)
	unlock, ok := h.engine.Locks.TryAcquire(group, what)
	if !ok {
		_, mine, err := h.plan(ctx, p, false)
		if err != nil {
			return created{}, err
		}
		if mine.Ready != nil {
			return created{Volume: *mine.Ready}, nil
		}
		group = alloc.PlacementGroup(mine)
		if unlock, err = h.engine.Locks.Acquire(ctx, group, what); err != nil {
			return created{}, err
		}
	}
	defer unlock()
	s, mine, err := h.plan(ctx, p, true)
	switch {
	case err != nil:
		return created{}, err
	case mine.Ready != nil:
		return created{Volume: *mine.Ready}, nil
	}
	h.groups.Store(p.Spec.Class.Group, alloc.PlacementGroup(mine))
	switch {
	case alloc.PlacementGroup(mine) != group:
		return created{}, errChanged
	case mine.Finish != nil:
		v, err := h.completeOrRemove(ctx, s, *mine.Finish)
		return created{Volume: v}, err
	case mine.Leftover != nil:
		if err := h.engine.Remove(ctx, s, mine.Leftover.ID, mine.Leftover.UUID, mine.Leftover.State); err != nil {
			return created{}, err
		}
		return created{}, errChanged
	default:
		return h.allocate(ctx, p, mine.Create)
	}
}

// plan reads the disks and plans the request's own volume. With locked (the caller holds a group's lock) it also reserves
// capacity for the peers.
func (h *Host) plan(ctx context.Context, p reserve.Request, locked bool) (lvm.State, alloc.Placement, error) {
	s, err := h.engine.ReadState(ctx)
	if err != nil {
		return lvm.State{}, alloc.Placement{}, err
	}
	mine, err := h.reserved.Plan(s, h.engine.Config.Cluster, p, locked)
	return s, mine, err
}

// created is a volume that was created or found. In the state "zeroing" Create does not return it until its rest is zero.
type created struct {
	lvm.Volume
	rest []lvm.Run // its extents with unknown content
}

// allocate runs lvcreate. It commits the extents, the tags and the state "creating", activates the volume and blanks its
// beginning, and exits with 0 only if all of that succeeded. A later commit tags the volume as ready. A snapshot or clone is
// tagged at once: it holds the content of one moment, so the driver never uses one that it has not returned.
func (h *Host) allocate(ctx context.Context, p reserve.Request, c *alloc.Allocation) (created, error) {
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return created{}, err
	}
	change := engine.Change{Group: c.Group, Steps: steps}
	if pool := c.Volume.Class.Pool; pool != "" {
		if err := h.engine.CheckTransaction(c.Group, pool); err != nil {
			return created{}, err
		}
		change.Legs = c.Group.ComponentsByName(pool)
	}
	resume, err := h.suspendSource(ctx, c)
	if err != nil {
		return created{}, err
	}
	done, err := h.engine.Commit(ctx, change)
	if done.Failure != nil && c.Source != nil { // as in createSnapshot
		h.resumeSource(ctx, lvm.State{Groups: []lvm.Group{c.Group}}, c.Volume.Source)
	}
	if late := resume(); late != nil && done.Failure == nil {
		done.Failure = late
	}
	if done.Failure != nil {
		h.engine.NoteFailure(c.Volume.Class)
		return created{}, h.afterFailedCreate(ctx, p, c, steps, done, err)
	}
	h.reserved.Drop(p.Spec)
	var v created
	if err == nil {
		v, err = h.checkCreated(ctx, c, done.State)
	}
	if err != nil && !errors.Is(err, errChanged) {
		err = lvm.Errorf(lvm.KindBusy, "volume %q is created, but must be verified before it is used; retry: %w", p.Spec.Name, err)
	}
	return v, err
}

// suspendSource prepares the source of a copy for LVM's freeze; resume ends that.
func (h *Host) suspendSource(ctx context.Context, c *alloc.Allocation) (resume func() error, err error) {
	if c.Source == nil {
		return func() error { return nil }, nil
	}
	source := lvm.Volume{ID: c.Volume.Source, UUID: c.Source.UUID, Group: c.Volume.Group, Class: c.Volume.Class}
	if err := h.freezable(ctx, c.Group, source); err != nil {
		return nil, err
	}
	return h.suspend(source, suspendLimit)
}

// checkCreated verifies a volume whose lvcreate exited with 0. On an error the volume stays. LVM (2.03.16) exits with 0 even if a
// disk disappeared before the commit and only the other disks have it.
func (h *Host) checkCreated(ctx context.Context, c *alloc.Allocation, s lvm.State) (created, error) {
	g, lv, v, err := s.FindVolume(c.Volume.ID)
	if err != nil {
		return created{}, err
	}
	if err := lvm.CheckWritable(s, g); err != nil {
		return created{}, err
	}
	rest, err := unzeroedRest(c, g, lv)
	switch {
	case err != nil:
		if err := h.engine.Remove(ctx, s, v.ID, v.UUID, v.State); err != nil {
			return created{}, err
		}
		return created{}, err
	case v.State == lvm.StateZeroing:
		return created{v, rest}, nil
	case v.Source != (lvm.ID{}):
		v, err := h.engine.ChangeState(ctx, s, v, lvm.StateReady)
		return created{Volume: v}, err
	}
	if err := h.engine.Flush(g); err != nil {
		return created{}, err
	}
	v.State = lvm.StateReady
	h.ready.TagLater(v)
	return created{Volume: v}, nil
}

// afterFailedCreate removes what a failed command left: the command may have committed the volume, whatever its exit status,
// and then its extents stay allocated. It returns the reason that the disks show now, if there is one. While something may be
// left that is KindBusy: after any other kind the caller may forget the volume or turn to another node.
func (h *Host) afterFailedCreate(ctx context.Context, p reserve.Request, c *alloc.Allocation, tried []lvmcmd.Step, done engine.Committed, err error) error {
	failure := lvm.Errorf(lvm.KindInternal, "cannot create volume %q with %s in volume group %s: %w", p.Spec.Name, c.Volume.Size, c.Group.Name, done.Failure)
	var s lvm.State
	var mine alloc.Placement
	if err == nil {
		s = h.engine.WithKnowledge(done.State)
		mine, err = h.reserved.Plan(s, h.engine.Config.Cluster, p, true)
	}
	if err != nil {
		kind := lvm.KindOf(err)
		if g, unseen := s.FindGroup(c.Group.UUID); unseen != nil || g.IncompleteReason() != "" {
			kind = lvm.KindBusy
		}
		return lvm.Errorf(kind, "%w (found after: %w)", err, failure)
	}
	half := mine.Leftover
	if half == nil {
		half = mine.Finish // no request got it, so it need not be completed
	}
	switch {
	case half != nil && half.ID == c.Volume.ID:
		if c.Volume.Source != (lvm.ID{}) {
			h.resumeSource(ctx, s, c.Volume.Source)
		}
		if err := h.engine.Remove(ctx, s, half.ID, half.UUID, half.State); err != nil {
			return lvm.Errorf(lvm.KindBusy, "%w; the next request removes the unfinished volume: %w", failure, err)
		}
		return failure
	case mine.Create != nil && sameSteps(mine.Create, tried):
		return failure // nothing changed, so a retry would fail too
	default:
		return errChanged
	}
}

func sameSteps(c *alloc.Allocation, tried []lvmcmd.Step) bool {
	steps, err := lvmcmd.CreateSteps(c)
	return err == nil && slices.EqualFunc(steps, tried, func(a, b lvmcmd.Step) bool { return slices.Equal(a.Argv, b.Argv) })
}

// completeOrRemove completes the volume of a request that was not answered, or whose answer was lost. A thin volume whose
// create message never reached the pool cannot be activated, and LVM sends messages only when it creates or removes a thin
// volume: completeOrRemove removes it, and create plans again. (With the disks' metadata alloc sees this earlier; LVM's report
// does not show it.)
func (h *Host) completeOrRemove(ctx context.Context, s lvm.State, v lvm.Volume) (lvm.Volume, error) {
	finished, failure := h.engine.CompleteVolume(ctx, s, v)
	if failure == nil || v.Class.Layout != lvm.LayoutThin || lvm.KindOf(failure) == lvm.KindBusy { // busy: the driver could not try
		return finished, failure
	}
	if _, active, err := h.engine.FindDevice(ctx, v.ID, v.UUID); err != nil || active {
		return lvm.Volume{}, failure
	}
	if err := h.engine.Remove(ctx, s, v.ID, v.UUID, lvm.StateCreating); err != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "%w; the driver cannot remove it either: %w", failure, err)
	}
	return lvm.Volume{}, errChanged
}

// unzeroedRest returns the extents of a new raw block volume to zero before Create returns it. errChanged: the plan relied on
// extents that were known to be zero, and another program may have used them since.
func unzeroedRest(c *alloc.Allocation, g lvm.Group, lv lvm.LV) ([]lvm.Run, error) {
	if !c.Volume.Block || c.Volume.Class.Layout == lvm.LayoutThin {
		return nil, nil
	}
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return nil, err
	}
	foreign := g.Seqno-c.Group.Seqno > lvmcmd.CommitsOf(steps) // another program may have used the extents since
	switch {
	case c.Volume.State == lvm.StateZeroing && foreign:
		return []lvm.Run{{Start: 0, Count: lv.Extents}}, nil
	case c.Volume.State == lvm.StateZeroing:
		return alloc.RangesOn(g, lv, alloc.UnzeroedIn(c.Group, c.Ranges)), nil
	case foreign:
		return nil, errChanged
	}
	return nil, nil
}

// zeroNew zeroes the extents with unknown content and then tags the volume as ready; only then Create returns it. It does not
// hold the group's lock: zeroing can take hours. A volume whose zeroing fails or is interrupted is never used.
func (h *Host) zeroNew(ctx context.Context, m created) (lvm.Volume, error) {
	err := h.wiper.ZeroExtents(ctx, m.ID, m.rest)
	s, unlock, lockErr := h.engine.Locked(ctx, m.ID.VG, "completing the zeroing of volume "+m.ID.LV, h.engine.ReadDisks)
	if lockErr != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is not zeroed yet; retry: %w", m.Name, lockErr)
	}
	defer unlock()
	g, lv, v, findErr := s.FindVolume(m.ID)
	switch {
	case findErr != nil:
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q was removed while the driver zeroed it; retry: %w", m.Name, findErr)
	case v.UUID != m.UUID || v.State != lvm.StateZeroing || v.Size != m.Size:
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "another program changed volume %s/%s while the driver zeroed it; retry", g.Name, lv.Name)
	case h.tasks.IsStopped():
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is not zeroed yet, and the driver is shutting down; retry", m.Name)
	case err != nil:
		err = lvm.Errorf(lvm.KindInternal, "cannot zero volume %s/%s, so the driver does not create it: its extents may hold other users' data: %w", g.Name, lv.Name, err)
		if removal := h.engine.Remove(ctx, s, v.ID, v.UUID, v.State); removal != nil {
			return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "%w; the next request removes it: %w", err, removal)
		}
		return lvm.Volume{}, err
	}
	v, err = h.engine.ChangeState(ctx, s, v, lvm.StateReady)
	if err != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q is zeroed, but the driver cannot tag it as ready yet; retry: %w", m.Name, err)
	}
	return v, nil
}
