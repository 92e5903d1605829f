package engine

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// ReadState reads the node's volume groups and adds what WithKnowledge knows.
func (e *Engine) ReadState(ctx context.Context) (lvm.State, error) {
	s, err := e.ReadDisks(ctx)
	if err != nil {
		return lvm.State{}, err
	}
	return e.WithKnowledge(s), nil
}

// ReadVolumes reads the node's volume groups for a caller that neither plans nor changes anything: their volumes have the states that requests
// know, and nothing says what the groups can take.
func (e *Engine) ReadVolumes(ctx context.Context) (lvm.State, error) {
	s, err := e.ReadDisks(ctx)
	if err != nil {
		return lvm.State{}, err
	}
	return e.Untagged.withReady(s), nil
}

// WithKnowledge adds to a state what the disks do not hold: the volumes that requests got before their ready tag, the blocked
// groups and the overcommitted pools. It also adds the free extents that are known to be zero, and the targets that the kernel lacks.
func (e *Engine) WithKnowledge(s lvm.State) lvm.State {
	s = e.Untagged.withReady(s)
	s.MissingTargets = e.missingTargets()
	s.Groups = slices.Clone(s.Groups) // other reads share them
	for i, g := range s.Groups {
		s.Groups[i] = e.withOvercommit(g)
		e.Zeroed.Show(&s.Groups[i])
		if _, hung := e.Locks.BlockedFor(g.UUID); hung != nil {
			s.Groups[i].Problem = hung.Error()
		}
	}
	return s
}

// ReadDisks reads the disks. It notes new groups in LastRead, and starts nothing for them.
func (e *Engine) ReadDisks(ctx context.Context) (lvm.State, error) {
	ticket := e.Zeroed.Reading()
	s, err := e.Disks.Read(ctx)
	if err != nil {
		return lvm.State{}, lvm.Errorf(lvm.KindInternal, "cannot read the volume groups of this node: %w", err)
	}
	e.Zeroed.Read(ticket, s)
	e.LastRead.note(s)
	return e.withNodeProblems(s), nil
}

// report runs LVM's report on these devices, to compare it with a reading.
func (e *Engine) report(ctx context.Context, devices []string) (lvm.State, error) {
	if len(devices) == 0 {
		return lvm.State{}, nil
	}
	report, err := e.runLVM(ctx, lvmcmd.ReportArgs(devices))
	if err != nil {
		return lvm.State{}, err
	}
	return ondisk.ParseReport(bytes.NewReader(report))
}

// defaultCacheTTL lets a change by an admin show within a second. The capacity requests of all storage classes, which come
// every second, share one read of the disks.
const defaultCacheTTL = 500 * time.Millisecond

// cache keeps what the driver read last, for requests that only report: capacity, lists, metrics. Whoever decides or changes
// something reads again. The cache never keeps a read that began before a command of the driver ended, so the result of a command
// is visible as soon as it is reported.
type cache[T any] struct {
	mu     sync.Mutex
	value  T
	until  time.Time // when the value expires
	change int       // counts the driver's commands
}

// invalidate must be called after each command that may have changed something.
func (g *cache[T]) invalidate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.change++
	g.until = time.Time{}
}

// get returns the cached value, whether it is still valid, and the change count to pass to put.
func (g *cache[T]) get() (value T, good bool, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.value, time.Now().Before(g.until), g.change
}

// put stores a value unless a command ended since its read began, or the cache holds a later one: of two concurrent reads, the
// one that began first may end last.
func (g *cache[T]) put(value T, until time.Time, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if change == g.change && until.After(g.until) {
		g.value, g.until = value, until
	}
}

// cached returns what the cache holds, or what read returns, which may then be as old as ttl.
func cached[T any](c *cache[T], ttl time.Duration, read func() (T, error)) (T, error) {
	value, good, change := c.get()
	if good {
		return value, nil
	}
	began := time.Now()
	value, err := read()
	if err == nil {
		c.put(value, began.Add(ttl), change)
	}
	return value, err
}

// CachedState returns a state that may be as old as Config.CacheTTL.
func (e *Engine) CachedState(ctx context.Context) (lvm.State, error) {
	s, err := cached(&e.cache, e.cacheTTL, func() (lvm.State, error) { return e.ReadDisks(ctx) })
	if err != nil {
		return lvm.State{}, err
	}
	return e.WithKnowledge(s), nil
}

// Mapped is a reading of the node's device-mapper devices.
type Mapped struct {
	Devices []lvm.Device
	lvm.Stacks
	Unstacked error // why Stacks is unknown
}

// CachedDevices lists LVM's devices with what they are on. The list may be as old as Config.CacheTTL.
func (e *Engine) CachedDevices() (Mapped, error) {
	return cached(&e.mapped, e.cacheTTL, func() (m Mapped, err error) {
		if m.Devices, err = e.Devices(); err == nil {
			m.Stacks, m.Unstacked = e.Machine.Kernel.Stacks(m.Devices)
		}
		return m, err
	})
}

// reader reads the node's volume groups: engine.ReadDisks or engine.ReadState.
type reader func(context.Context) (lvm.State, error)

// Locked acquires a group's lock, and reads the disks under it.
func (e *Engine) Locked(ctx context.Context, uuid lvm.VGUUID, what string, read reader) (s lvm.State, unlock func(), err error) {
	unlock, err = e.Locks.Acquire(ctx, uuid, what)
	if err != nil {
		return lvm.State{}, nil, err
	}
	return readLocked(ctx, unlock, read)
}

// How many other operations, such as creates, get a group's lock after one that a pod waits for. Each activation needs its own
// command, but one command tags all new volumes as ready: during a burst of creates it pays to let several go first.
const (
	owedByActivation = 1
	owedByMarking    = 4
)

// lockedFirst is locked for what a pod waits for.
func (e *Engine) lockedFirst(ctx context.Context, uuid lvm.VGUUID, what string, owes int, read reader) (s lvm.State, unlock func(), err error) {
	unlock, err = e.Locks.AcquireFirst(ctx, uuid, what, owes)
	if err != nil {
		return lvm.State{}, nil, err
	}
	return readLocked(ctx, unlock, read)
}

func readLocked(ctx context.Context, unlock func(), read reader) (lvm.State, func(), error) {
	s, err := read(ctx)
	if err != nil {
		unlock()
		return lvm.State{}, nil, err
	}
	return s, unlock, nil
}

// lastRead records where the last read of the disks found the physical volumes of each group. It also keeps the groups that are new or have a
// new disk for the one place that recovers them. A read starts nothing: it only notes.
type lastRead struct {
	mu        sync.Mutex
	groups    map[lvm.VGUUID][]lvm.PV
	unlabeled []string                  // State.Unlabeled
	names     map[lvm.VGUUID]lvm.VGName // of all reads, for the log
	began     bool                      // Begin was called
	fresh     []lvm.Group               // not taken yet
	noted     chan struct{}             // holds a value if fresh may have groups
}

// Name returns the group's name as last read; "" if it never was.
func (l *lastRead) Name(uuid lvm.VGUUID) lvm.VGName {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names[uuid]
}

// Begin counts all groups of a state as new, and from now on each that a read has and the read before had not, or had without one
// of its disks or with another device in its place.
func (l *lastRead) Begin(s lvm.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups, l.fresh, l.began = nil, nil, true
	l.noteLocked(s)
}

// note records the groups of a read.
func (l *lastRead) note(s lvm.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(s)
}

func (l *lastRead) noteLocked(s lvm.State) {
	if l.names == nil {
		l.names = map[lvm.VGUUID]lvm.VGName{}
	}
	now := make(map[lvm.VGUUID][]lvm.PV, len(s.Groups))
	for _, g := range s.Groups {
		l.names[g.UUID], now[g.UUID] = g.Name, g.PVs
		isNew := l.began && !l.hasDevices(g) && !slices.ContainsFunc(l.fresh, func(other lvm.Group) bool { return other.UUID == g.UUID })
		if isNew {
			l.fresh = append(l.fresh, g)
		}
	}
	l.groups, l.unlabeled = now, s.Unlabeled
	if len(l.fresh) > 0 {
		select {
		case l.noted <- struct{}{}:
		default: // a value is there
		}
	}
}

// hasDevices reports whether the last read found each present physical volume of the group on the same device.
func (l *lastRead) hasDevices(g lvm.Group) bool {
	before, known := l.groups[g.UUID]
	return known && !slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool {
		same := func(was lvm.PV) bool { return was.UUID == pv.UUID && was.Device == pv.Device }
		return pv.Device != "" && !slices.ContainsFunc(before, same)
	})
}

// Collect returns the new groups; each one once.
func (l *lastRead) Collect() []lvm.Group {
	l.mu.Lock()
	defer l.mu.Unlock()
	fresh := l.fresh
	l.fresh = nil
	return fresh
}

// Next waits for new groups, and takes them. The error is ctx's.
func (l *lastRead) Next(ctx context.Context) ([]lvm.Group, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.noted:
		return l.Collect(), nil
	}
}

// without returns those of the devices that carry no physical volume of the group. One whose label is lost, or cannot be read now, may.
func (l *lastRead) without(group lvm.VGUUID, devices []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(devices), func(device string) bool {
		carries := func(pv lvm.PV) bool {
			return pv.Device == device || pv.ReappearedDevice == device || slices.Contains(pv.DuplicateDevices, device)
		}
		return slices.ContainsFunc(l.groups[group], carries) || slices.Contains(l.unlabeled, device)
	})
}
