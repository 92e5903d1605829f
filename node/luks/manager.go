package luks

import (
	"context"
	"log/slog"
	"os"

	"github.com/nodelvm/nodelvm/lvm"
)

// machine is what the Manager does to the node.
type machine interface {
	// lock keeps every other process of this driver, and cryptsetup of an earlier one, from the volume (lvm.KindBusy).
	lock(ctx context.Context, device string) (*os.File, error)
	observe(v Volume) (Observation, error)
	// writeMark writes a mark durably. MarkFormatted removes the format mark after that.
	writeMark(v Volume, m Mark) error
	clearMapping(m Mapping) error
	// ensureName makes the mapping's name in /dev/mapper lead to it.
	ensureName(name string, m Mapping) error
	// removeMapping waits a little for a device that udev has open (lvm.KindInUse).
	removeMapping(ctx context.Context, name string) error
	// destroySlots overwrites the header and all key slots, and reads them back.
	destroySlots(v Volume) error
	mapping(name string) (Mapping, error)
	mappings() ([]string, error)
	// suspend stops all I/O of a mapping, with its file system frozen, or lets it continue.
	suspend(name string, stop bool) error
	cryptsetup(ctx context.Context, lock *os.File, args []string, keys ...*Key) error
}

// Config configures a Manager.
type Config struct {
	Log     *slog.Logger  // nil: slog.Default()
	Observe func(Command) // is called after each cryptsetup; may be nil
}

// Manager encrypts volumes. The caller works on one volume in one call at a time, and has the logical volume's device open during the
// call: device-mapper gives the number of a removed device to the next one.
type Manager struct {
	machine machine
	log     *slog.Logger
	costly  chan struct{} // held while a cryptsetup may use argonMemory, at most for maxTurn
}

// New returns a Manager for this node.
func New(c Config) *Manager {
	m := &Manager{machine: linux{observeCommand: c.Observe}, log: c.Log, costly: make(chan struct{}, 1)}
	if m.log == nil {
		m.log = slog.Default()
	}
	return m
}

// Expand resizes the mapping of an open volume to its logical volume, and returns its device and size; with a previous key in the Secret, it
// replaces that in the header. lvm.KindNotFound: it is not open. The key is needed only if the mapping is too small.
func (m *Manager) Expand(ctx context.Context, r Request) (device string, size lvm.Bytes, err error) {
	lock, err := m.machine.lock(ctx, r.Device)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = lock.Close() }()
	s := stage{Manager: m, Request: r, lock: lock}
	for range 2 {
		o, err := m.machine.observe(r.Volume)
		if err != nil {
			return "", 0, err
		}
		if !o.Mapping.Live {
			return "", 0, lvm.Errorf(lvm.KindNotFound, "volume %s is encrypted and not open on this node: stage it first", r.Handle)
		}
		step, err := plan(r.Volume, o, progress{})
		switch {
		case err != nil:
			return "", 0, err
		case step == StepNothing:
			return o.Mapping.Path(), o.Mapping.Size, s.rotateIfNeeded(ctx, o)
		case step != StepResize:
			return "", 0, lvm.Errorf(lvm.KindBusy, "volume %s cannot be expanded before it is staged: the next step is to %s", r.Handle, step)
		case r.Keys.Current == nil:
			return "", 0, lvm.Errorf(lvm.KindInvalid, "the expansion of encrypted volume %s needs its key: name the Secret in the StorageClass with csi.storage.k8s.io/node-expand-secret-name and -namespace, or end the volume's pods and start them again", r.Handle)
		}
		if err := s.do(ctx, step, o); err != nil {
			return "", 0, err
		}
	}
	return "", 0, lvm.Errorf(lvm.KindInternal, "the mapping of volume %s has not grown; see the driver's log", r.Handle)
}

// Unstage closes a volume, by its handle alone; a volume that is not open, or not encrypted, is closed. lvm.KindInUse: something
// has the mapping open.
func (m *Manager) Unstage(ctx context.Context, handle string) error {
	return m.machine.removeMapping(ctx, MappingName(handle))
}

// Mapping returns the device of an open volume, by its handle alone.
func (m *Manager) Mapping(handle string) (device string, number uint64, open bool, err error) {
	found, err := m.machine.mapping(MappingName(handle))
	if err != nil || !found.Live {
		return "", 0, false, err
	}
	return found.Path(), found.Number, true, nil
}

// Erase destroys the key slots of a volume before its deletion: after that no key decrypts its data. It closes the volume
// first (lvm.KindInUse). A repetition goes on where the first one ended. The data stay readable in snapshots and clones, which have
// copies of the header.
func (m *Manager) Erase(ctx context.Context, v Volume) error {
	lock, err := m.machine.lock(ctx, v.Device)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := m.machine.removeMapping(ctx, MappingName(v.Handle)); err != nil {
		return err
	}
	o, err := m.machine.observe(v)
	if err != nil {
		return err
	}
	if o.Size < HeaderSize+MinDataSize {
		return lvm.Errorf(lvm.KindInvalid, "logical volume %s has %s, too little for an encrypted volume", v.Device, o.Size)
	}
	if err := checkMapping(v, o); err != nil {
		return err
	}
	if err := m.machine.writeMark(v, MarkErased); err != nil {
		return err
	}
	return m.machine.destroySlots(v)
}

// Health is what Check finds.
type Health struct {
	Open     bool
	KeySlots int
	Problem  string // a sentence for a person; "": none
}

// Check reads the header and the mapping, without a process.
func (m *Manager) Check(v Volume) (Health, error) {
	o, err := m.machine.observe(v)
	if err != nil {
		return Health{}, err
	}
	h := Health{Open: o.Mapping.Live, KeySlots: len(usable(o.Header.Slots))}
	_, err = plan(v, o, progress{})
	switch {
	case lvm.KindOf(err) == lvm.KindInUse: // suspended for a snapshot, or held by an admin
	case err != nil:
		h.Problem = err.Error()
	case o.Header.State == HeaderValid && o.Header.Copies == 1:
		h.Problem = "one of the two copies of the LUKS header on " + v.Device + " is damaged: cryptsetup repairs it when the volume is opened next; check the disk"
	}
	return h, nil
}

// Suspend freezes the file system on an open volume and stops its I/O, until resume: LVM does that for a snapshot only where the file
// system is directly on the logical volume. A volume that is not open has no I/O. Between both calls the caller must not wait for
// anything on the volume.
func (m *Manager) Suspend(handle string) (resume func() error, err error) {
	name := MappingName(handle)
	found, err := m.machine.mapping(name)
	if err != nil || !found.Live || found.Suspended {
		return func() error { return nil }, err
	}
	if err := m.machine.suspend(name, true); err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot suspend the mapping of volume %s: %w", handle, err)
	}
	return func() error {
		if err := m.machine.suspend(name, false); err != nil {
			return lvm.Errorf(lvm.KindInternal, "volume %s is suspended, which blocks its pods; continue it with dmsetup resume %s: %w", handle, name, err)
		}
		return nil
	}, nil
}

// Recover, at the driver's start, resumes mappings that a killed driver left suspended, and removes those that a killed cryptsetup left
// without a table. Everything else that a crash or a reboot leaves, the next Stage continues.
func (m *Manager) Recover(ctx context.Context) error {
	names, err := m.machine.mappings()
	if err != nil {
		return err
	}
	for _, name := range names {
		found, err := m.machine.mapping(name)
		if err != nil {
			return err
		}
		switch {
		case found.Exists && !found.Live:
			m.log.InfoContext(ctx, "removing an encrypted mapping that has no table", "mapping", name)
			err = m.machine.removeMapping(ctx, name)
		case found.Suspended && !found.Table.KeyGone: // an admin's luksSuspend wipes the key
			m.log.InfoContext(ctx, "resuming an encrypted mapping", "mapping", name)
			err = m.machine.suspend(name, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
