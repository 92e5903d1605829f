package lvm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says where a Host works. The zero value of each field is explained at the field.
type Config struct {
	SystemDir string        // private directory for our own lvm.conf (LVM_SYSTEM_DIR); NewHost writes it
	LockDir   string        // the host's LVM lock directory, so that an admin's lvm and ours exclude each other
	BackupDir string        // host directory for the metadata backup of each group
	Cluster   string        // UID of the cluster; goes into the tags of each volume made here
	Log       *slog.Logger  // nil: slog.Default()
	Observe   func(Command) // nil, or called after each LVM command, from the goroutine that ran it

	SettleAfter time.Duration // how long a new volume's second commit waits for others to share it; 0: one second
	Patience    time.Duration // how long one operation may hold a group's lock before the group counts as hung; 0: two minutes
}

// Command is one finished LVM process.
type Command struct {
	Name     string   // "lvcreate"
	Args     []string // what followed the name
	Duration time.Duration
	ExitCode int // as in lvm(8), "Diagnostics"; -1 if it did not start or died of a signal
}

// Metrics is a reading of the figures that a Host is watched by.
type Metrics struct {
	Groups      []GroupMetrics
	Volumes     map[VolumeState]int // of this cluster
	WipeBacklog Bytes               // of the volumes that are deleted, what is not yet wiped and given back
	InFlight    int                 // operations under way
	ReaderOff   bool                // the disks told something else than LVM's report: each reading is an LVM process since
}

// GroupMetrics are the figures of one volume group.
type GroupMetrics struct {
	Name  string
	UUID  string
	Size  Bytes         // of all its disks that are there
	Free  Bytes         // of those, not in use by any volume
	Pools []PoolMetrics // by name
	Hung  time.Duration // for how long an LVM command in it has not ended that should have; 0 where all is well
}

// Host is LVM on this node. All its methods are safe for concurrent use.
type Host struct {
	cfg         Config
	log         *slog.Logger
	machine     Machine
	settleAfter time.Duration

	disks    *checkedReader
	flights  flights // by volume: one operation at a time
	writers  locks   // by group's UUID: one writer at a time
	hangs    hangs   // who holds a writer's lock for too long
	settler  settler
	reserved reservations
	wiper    wiper
	groups   sync.Map // Class.Group -> UUID of the group that served it last
	alone    *instanceLock
	commands *commandFiles

	closing    context.Context // done when the Host closes
	stop       context.CancelFunc
	background sync.WaitGroup // what works on when the call that began it has been answered
}

// NewHost prepares LVM's configuration; it touches no volume.
func NewHost(cfg Config) (*Host, error) {
	if cfg.SystemDir == "" {
		return nil, Errorf(KindInvalid, "no folder is given for LVM's configuration")
	}
	if err := writeConfig(cfg); err != nil {
		return nil, Errorf(KindInternal, "%w", err)
	}
	files := &commandFiles{dir: cfg.LockDir}
	h := NewHostOn(cfg, Machine{
		Runner: command{systemDir: cfg.SystemDir, observe: cfg.Observe, reports: make(chan struct{}, maxReports), files: files},
		Kernel: kernel{sys: "/sys", dev: "/dev"},
		Reader: &Disks{},
	})
	h.commands = files
	return h, nil
}

// NewHostOn makes a Host on another machine than the real one, for tests.
func NewHostOn(cfg Config, machine Machine) *Host {
	h := &Host{cfg: cfg, log: cmp.Or(cfg.Log, slog.Default()), machine: machine, commands: &commandFiles{}}
	h.settleAfter = cmp.Or(cfg.SettleAfter, time.Second)
	h.hangs.limit, h.hangs.log = cmp.Or(cfg.Patience, 2*time.Minute), h.log
	h.closing, h.stop = context.WithCancel(context.Background())
	h.disks = &checkedReader{direct: machine.Reader, report: h.report, later: h.behind, log: h.log}
	return h
}

// Ready tells whether LVM can be read and device-mapper is there. It starts no process as long as the disks can be read
// directly.
func (h *Host) Ready(ctx context.Context) error {
	if err := h.machine.Kernel.Ready(); err != nil {
		return err
	}
	_, err := h.read(ctx)
	return err
}

// Close takes no new operations (KindBusy), waits for those under way, marks new volumes as ready, and stops wiping at the
// next chunk; what is not yet wiped is taken up by the next Start. The error is ctx's: then something is still running.
func (h *Host) Close(ctx context.Context) error {
	h.stop()
	err := h.flights.close(ctx)
	var last sync.WaitGroup
	last.Go(func() {
		if err := h.settleRest(ctx); err != nil {
			h.log.Warn("new volumes could not be marked as ready; the next start does it", "error", err)
		}
	})
	err = errors.Join(err, await(ctx, &last), await(ctx, &h.background))
	if err == nil {
		h.commands.release()
		h.alone.release()
	}
	return err
}

// read reads the node's volume groups as callers are to see them.
func (h *Host) read(ctx context.Context) (State, error) {
	s, err := h.readRaw(ctx)
	if err != nil {
		return State{}, err
	}
	s = h.settler.overlay(s)
	shared := true // with other readings
	for i, g := range s.Groups {
		_, hung := h.hangs.of(g.UUID)
		if hung == nil {
			continue
		}
		if shared {
			s.Groups, shared = slices.Clone(s.Groups), false
		}
		s.Groups[i].Problem = hung.Error()
	}
	return s, nil
}

// readRaw reads the disks: directly, or, where that cannot be done, through LVM's own report, one process.
func (h *Host) readRaw(ctx context.Context) (State, error) {
	s, err := h.disks.Read(ctx)
	if err != nil {
		return State{}, Errorf(KindInternal, "the volume groups of this node cannot be read: %w", err)
	}
	return s, nil
}

// report asks LVM.
func (h *Host) report(ctx context.Context) (State, error) {
	report, err := h.machine.Runner.Run(ctx, reportArgs())
	if err != nil {
		return State{}, err
	}
	return parseReport(bytes.NewReader(report))
}

// behind runs what nobody waits for but Close.
func (h *Host) behind(work func(context.Context)) {
	if h.closing.Err() == nil {
		h.background.Go(func() { work(h.closing) })
	}
}

// group finds a group by its UUID. KindNotOurs: it is not on this node.
func (s State) group(uuid string) (Group, error) {
	for _, g := range s.Groups {
		if g.UUID == uuid {
			return g, nil
		}
	}
	unread := ""
	if len(s.Unread) > 0 {
		unread = " (" + strings.Join(s.Unread, "; ") + ")"
	}
	return Group{}, Errorf(KindNotOurs, "the volume group %s is not on this node%s", uuid, unread)
}

// find finds the volume in the state, in whatever state its life is. KindNotOurs: its group is not here, or the LV is
// not a volume of this driver; KindNotFound: the group is here and lacks it.
func (s State) find(id ID) (Group, LV, Volume, error) {
	group, err := s.group(id.VG)
	if err != nil {
		return Group{}, LV{}, Volume{}, Errorf(KindNotOurs, "volume %s: %w", id, err)
	}
	i := slices.IndexFunc(group.LVs, func(lv LV) bool { return lv.Name == id.LV })
	if i < 0 {
		return group, LV{}, Volume{}, Errorf(KindNotFound, "volume group %s has no volume %s", group.Name, id.LV)
	}
	lv := group.LVs[i]
	v, ours, err := volumeOf(group, lv)
	if err == nil && !ours {
		err = Errorf(KindNotOurs, "%s/%s is not a volume of this driver: it is left alone", group.Name, lv.Name)
	}
	return group, lv, v, err
}

// Lookup finds a volume that is ready. KindNotFound: proven absent, not yet ready, or deleted; KindNotOurs: its group
// is not on this node.
func (h *Host) Lookup(ctx context.Context, id ID) (Volume, error) {
	s, err := h.read(ctx)
	if err != nil {
		return Volume{}, err
	}
	_, _, v, err := s.find(id)
	if err == nil && v.State != StateReady {
		err = Errorf(KindNotFound, "volume %s is not there: %s/%s is in the state %q", id, v.Group, id.LV, v.State)
	}
	if err != nil {
		return Volume{}, err
	}
	return v, nil
}

// List lists the ready volumes of this cluster, ordered by ID.
func (h *Host) List(ctx context.Context) ([]Volume, error) {
	s, err := h.read(ctx)
	if err != nil {
		return nil, err
	}
	all, _ := h.volumes(s) // a damaged one is no volume; Start has told of it
	ready := slices.DeleteFunc(all, func(v Volume) bool { return v.State != StateReady })
	slices.SortFunc(ready, func(a, b Volume) int { return strings.Compare(a.ID.String(), b.ID.String()) })
	return ready, nil
}

// volumes lists the volumes of this cluster, in whatever state; damaged says which ones bear our mark and cannot be
// read.
func (h *Host) volumes(s State) (all []Volume, damaged error) {
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			v, ours, err := volumeOf(g, lv)
			if err != nil {
				damaged = errors.Join(damaged, err)
			} else if ours && v.Cluster == h.cfg.Cluster {
				all = append(all, v)
			}
		}
	}
	return all, damaged
}

// Capacity answers what a class can still get here. It waits for no operation under way, and starts no process. A class
// whose group is not here has none; that is not an error. KindInvalid: the class can never be served.
func (h *Host) Capacity(ctx context.Context, class Class) (Capacity, error) {
	if _, err := checkClass(class); err != nil {
		return Capacity{}, err
	}
	s, err := h.read(ctx)
	if err != nil {
		return Capacity{}, err
	}
	return capacity(h.reserved.in(s), class)
}

// metricsPatience is how long a reading of the figures may take before it is given up.
const metricsPatience = 5 * time.Second

// Metrics reads the figures that a Host is watched by. Groups are missing from them while the disks cannot be read.
func (h *Host) Metrics() Metrics {
	m := Metrics{
		Volumes:     map[VolumeState]int{StateCreating: 0, StateReady: 0, StateDeleting: 0},
		WipeBacklog: h.wiper.backlog(),
		InFlight:    h.flights.count(),
		ReaderOff:   h.disks.difference() != "",
	}
	ctx, cancel := context.WithTimeout(context.Background(), metricsPatience)
	defer cancel()
	s, err := h.read(ctx)
	if err != nil {
		h.log.Warn("no figures of the volume groups", "error", err)
		return m
	}
	all, _ := h.volumes(s)
	for _, v := range all {
		m.Volumes[v.State]++
	}
	paths, err := h.paths()
	if err != nil {
		h.log.Warn("no figures of the thin pools", "error", err)
	}
	for _, g := range s.Groups {
		gm := GroupMetrics{Name: g.Name, UUID: g.UUID}
		for _, pv := range g.PVs {
			if !pv.Missing {
				gm.Size += g.bytes(pv.Extents)
			}
		}
		gm.Free = g.bytes(g.free())
		gm.Hung, _ = h.hangs.of(g.UUID)
		gm.Pools = h.poolsOf(g, paths)
		m.Groups = append(m.Groups, gm)
	}
	return m
}
