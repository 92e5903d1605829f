package host

import (
	"context"
	"errors"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// creating is a Create request, as flights compare it.
type creating struct{ spec lvm.Spec }

// Create makes a volume, or finds the one that an equal request made. One LVM process for a new linear, striped, RAID or
// thin volume (one more where a thin pool must be made or grown, one more for a copy), and a share of one later; none for
// a volume that is there. KindExists: the name is taken by something else; KindInsufficientCapacity: this node cannot have it now;
// KindInvalid, KindOutOfRange: no node ever can; KindBusy: ask again.
func (h *Host) Create(ctx context.Context, spec lvm.Spec) (lvm.Volume, error) {
	return h.CreateWithPeers(ctx, spec, nil)
}

// CreateWithPeers is Create for a volume that is of use only together with others: those of the same pod. Either all of
// them can be had, then the room for the siblings is kept for a while (KeepReserved), or until they are made or refused;
// or none, which is KindInsufficientCapacity, and nothing was made: the siblings' requests that are under way, or come within
// seconds, are refused too.
func (h *Host) CreateWithPeers(ctx context.Context, spec lvm.Spec, siblings []lvm.Spec) (lvm.Volume, error) {
	spec, err := lvm.CheckSpec(spec)
	if err != nil {
		return lvm.Volume{}, err
	}
	return do(ctx, &h.operations, lvm.LVName(spec.Name), creating{spec}, func(ctx context.Context) (lvm.Volume, error) {
		return h.create(ctx, newPlacementRequest(spec, siblings))
	})
}

// errChanged: what was planned does not hold any more, since somebody else changed the groups meanwhile, or since
// a hurdle was taken.
var errChanged = errors.New("the volume groups changed meanwhile")

// createAttempts bounds how often a plan is made anew: for a leftover, and for an admin's own commands in between.
const createAttempts = 5

func (h *Host) create(ctx context.Context, p placementRequest) (v lvm.Volume, err error) {
	leave := h.reserved.enter(p.spec)
	defer func() { leave(err) }()
	for range createAttempts {
		m, err := h.tryCreate(ctx, p)
		if err == nil && m.State == lvm.StateZeroing {
			m.Volume, err = h.zeroNew(ctx, m)
		}
		if !errors.Is(err, errChanged) {
			return m.Volume, err
		}
	}
	return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %q: another program keeps changing the volume groups of this node; retry", p.spec.Name)
}

// tryCreate plans under the lock of the group that served the class before. While others work there, or if there was
// none before, it plans without the lock first: that is enough for a volume that is there and for a refusal.
func (h *Host) tryCreate(ctx context.Context, p placementRequest) (created, error) {
	what := "making volume " + p.spec.Name
	guess, _ := h.groups.Load(p.spec.Class.Group)
	group, _ := guess.(string)
	unlock, ok := h.tryLockGroup(group, what)
	if !ok {
		_, mine, err := h.plan(ctx, p, false)
		if err != nil {
			return created{}, err
		}
		if mine.Ready != nil {
			return created{Volume: *mine.Ready}, nil
		}
		group = alloc.PlacementGroup(mine)
		if unlock, err = h.lockGroup(ctx, group, what); err != nil {
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
	h.groups.Store(p.spec.Class.Group, alloc.PlacementGroup(mine))
	switch {
	case alloc.PlacementGroup(mine) != group:
		return created{}, errChanged
	case mine.Finish != nil:
		v, err := h.completeOrRemove(ctx, s, *mine.Finish)
		return created{Volume: v}, err
	case mine.Leftover != nil:
		if err := h.remove(ctx, s, mine.Leftover.ID, mine.Leftover.UUID, mine.Leftover.State); err != nil {
			return created{}, err
		}
		return created{}, errChanged
	default:
		return h.allocate(ctx, p, mine.Create)
	}
}

// plan reads the disks and plans the party's own volume; locked: under the lock of a group, the room for all of the party
// is kept then.
func (h *Host) plan(ctx context.Context, p placementRequest, locked bool) (lvm.State, alloc.Placement, error) {
	s, err := h.readState(ctx)
	if err != nil {
		return lvm.State{}, alloc.Placement{}, err
	}
	mine, err := h.reserved.plan(s, h.cfg.Cluster, p, locked)
	return s, mine, err
}

// created is a volume that was made or found. In the state "zeroing" it is not answered before its rest is zero.
type created struct {
	lvm.Volume
	rest []lvm.Run // of its extents, those whose content is not known
}

// allocate makes the volume: its last step commits the extents, the tags and the state "creating", activates it and blanks
// its beginning, and ends with status 0 only if all of that is done. Marking it as ready is left for later, but for
// a copy: its content is that of one moment, so one that was not answered is never used.
func (h *Host) allocate(ctx context.Context, p placementRequest, c *alloc.Allocation) (created, error) {
	steps, err := lvmcmd.CreateSteps(c)
	if err != nil {
		return created{}, err
	}
	if c.Source != nil {
		if err := h.freezable(ctx, c.Group, lvm.Volume{ID: c.Volume.Source, UUID: c.Source.UUID}); err != nil {
			return created{}, err
		}
	}
	if err := h.runAfterCleanup(ctx, c.Group, c.Group.ComponentsByName(c.Volume.Class.Pool), steps); err != nil {
		return created{}, h.afterFailedCreate(ctx, p, c, steps, err)
	}
	h.reserved.drop(p.spec)
	v, err := h.checkCreated(ctx, c)
	if err != nil && !errors.Is(err, errChanged) {
		err = lvm.Errorf(lvm.KindBusy, "volume %q is created, but must be verified before it is used; retry: %w", p.spec.Name, err)
	}
	return v, err
}

// checkCreated looks at a volume whose lvcreate has ended well. An error leaves the volume where it is. LVM (2.03.16) ends well
// also where a disk has vanished before its commit, and has written it to the others.
func (h *Host) checkCreated(ctx context.Context, c *alloc.Allocation) (created, error) {
	s, err := h.readDisks(ctx)
	if err != nil {
		return created{}, err
	}
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
		if err := h.remove(ctx, s, v.ID, v.UUID, v.State); err != nil {
			return created{}, err
		}
		return created{}, err
	case v.State == lvm.StateZeroing:
		return created{v, rest}, nil
	case v.Source != (lvm.ID{}):
		v, err := h.changeState(ctx, s, v, lvm.StateReady)
		return created{Volume: v}, err
	}
	if err := h.flush(g); err != nil {
		return created{}, err
	}
	v.State = lvm.StateReady
	h.markReadyLater(v)
	return created{Volume: v}, nil
}

// afterFailedCreate finds out what a failed command left, and removes it: LVM's exit status tells nothing, and what it
// committed would hold its extents for ever. What it returns is the reason that the disks show now, if there is one. As
// long as something may be left, that is KindBusy: any other kind lets the caller forget the volume, or turn to another node.
func (h *Host) afterFailedCreate(ctx context.Context, p placementRequest, c *alloc.Allocation, tried []lvmcmd.Step, failure error) error {
	failure = lvm.Errorf(lvm.KindInternal, "cannot create volume %q with %s in volume group %s: %w", p.spec.Name, c.Volume.Size, c.Group.Name, failure)
	s, mine, err := h.plan(ctx, p, true)
	if err != nil {
		kind := lvm.KindOf(err)
		if g, unseen := s.FindGroup(c.Group.UUID); unseen != nil || g.IncompleteReason() != "" {
			kind = lvm.KindBusy
		}
		return lvm.Errorf(kind, "%w (seen after: %w)", err, failure)
	}
	half := mine.Leftover
	if half == nil {
		half = mine.Finish // it was never answered, so it need not be finished
	}
	switch {
	case half != nil && half.ID == c.Volume.ID:
		if c.Volume.Source != (lvm.ID{}) {
			h.resumeSource(ctx, s, c.Volume.Source)
		}
		if err := h.remove(ctx, s, half.ID, half.UUID, half.State); err != nil {
			return lvm.Errorf(lvm.KindBusy, "%w; the next request removes what this one left: %w", failure, err)
		}
		return failure
	case mine.Create != nil && sameSteps(mine.Create, tried):
		return failure // nothing changed: trying again would fail again
	default:
		return errChanged
	}
}

func sameSteps(c *alloc.Allocation, tried []lvmcmd.Step) bool {
	steps, err := lvmcmd.CreateSteps(c)
	return err == nil && slices.EqualFunc(steps, tried, func(a, b lvmcmd.Step) bool { return slices.Equal(a.Argv, b.Argv) })
}

// completeVolume completes a volume that an earlier driver left as creating, and may have answered: its device is made, its
// beginning and its end, where signatures stand, are blanked as lvcreate does, and it is marked as ready. Nobody's data
// can be in it, since only what is marked as ready is handed out. The group's lock must be held.
func (h *Host) completeVolume(ctx context.Context, s lvm.State, v lvm.Volume) (lvm.Volume, error) {
	g, err := s.FindGroup(v.ID.VG)
	if err != nil {
		return lvm.Volume{}, err
	}
	if err := lvm.CheckWritable(s, g); err != nil { // what is known of a group that lacks a disk may be older than what that one knows
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "volume %s/%s was left unfinished and cannot be finished now: %w", v.Group, v.ID.LV, err)
	}
	path, err := h.activateLocked(ctx, s, v)
	if err != nil {
		return lvm.Volume{}, err
	}
	if v.Class.Layout != lvm.LayoutThin { // a thin volume's blocks are blank until they are written
		if err := h.machine.Kernel.CheckUnused(ctx, path); err != nil {
			return lvm.Volume{}, lvm.Errorf(lvm.KindOf(err), "volume %s/%s was left unfinished and cannot be finished: %w", v.Group, v.ID.LV, err)
		}
		for _, stretch := range [][2]lvm.Bytes{{0, min(blankHead, v.Size)}, {max(0, v.Size-blankTail), v.Size}} {
			if err := h.machine.Kernel.Zero(ctx, deviceAt(v, path), stretch[0], stretch[1], nil); err != nil {
				return lvm.Volume{}, lvm.Errorf(lvm.KindInternal, "volume %s/%s was left unfinished and cannot be finished: %w", v.Group, v.ID.LV, err)
			}
		}
	}
	return h.changeState(ctx, s, v, lvm.StateReady)
}

// completeOrRemove is finish for the very request that made the volume: it was not answered then, or its answer was lost. A
// thin volume that its pool was never told to make cannot be activated, and LVM tells the pool only when it makes or
// removes one: so it is removed, and made anew. (Where the disks are read, complete knows it before; LVM's report does
// not tell it.)
func (h *Host) completeOrRemove(ctx context.Context, s lvm.State, v lvm.Volume) (lvm.Volume, error) {
	finished, failure := h.completeVolume(ctx, s, v)
	if failure == nil || v.Class.Layout != lvm.LayoutThin || lvm.KindOf(failure) == lvm.KindBusy { // busy: it could not even be tried
		return finished, failure
	}
	if _, active, err := h.Device(v.ID, v.UUID); err != nil || active {
		return lvm.Volume{}, failure
	}
	if err := h.remove(ctx, s, v.ID, v.UUID, lvm.StateCreating); err != nil {
		return lvm.Volume{}, lvm.Errorf(lvm.KindBusy, "%w; and it could not be removed: %w", failure, err)
	}
	return lvm.Volume{}, errChanged
}

// Where a volume can bear a signature that libblkid knows: the furthest from the beginning is the last copy of
// a LUKS2 header, at 4 MiB, the furthest from the end the header of an old software RAID, within 128 KiB.
const (
	blankHead = 8 * lvm.MiB
	blankTail = 1 * lvm.MiB
)
