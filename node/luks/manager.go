package luks

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"

	"github.com/nodelvm/nodelvm/lvm"
)

// machine is what the Manager uses of the node.
type machine interface {
	// lock excludes other processes of this driver, and the cryptsetup of an earlier one, from the volume (lvm.KindBusy).
	lock(ctx context.Context, device string) (*os.File, error)
	observe(v Volume) (Observation, error)
	// writeMark writes a mark durably. MarkFormatted removes the format mark after that.
	writeMark(v Volume, m Mark) error
	clearMapping(m Mapping) error
	// ensureName ensures that the mapping's name in /dev/mapper leads to it.
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

// Manager encrypts volumes. A caller makes only one call at a time for a volume, and keeps the logical volume's device open during
// the call: device-mapper gives the number of a removed device to the next one.
type Manager struct {
	machine machine
	log     *slog.Logger
	costly  chan struct{} // held while a cryptsetup may use argonMemory, at most for maxTurn
	stopped sync.Map      // by name: the mappings that Suspend suspended and that are not resumed yet
}

// New returns a Manager for this node. log: nil for slog.Default().
func New(log *slog.Logger) *Manager {
	return &Manager{machine: linux{}, log: cmp.Or(log, slog.Default()), costly: make(chan struct{}, 1)}
}

// Expand resizes the mapping of an open volume to its logical volume, and returns the mapping's device and size. If the Secret
// has a previous key, Expand replaces that in the header. It needs the key only if the mapping is too small. lvm.KindNotFound:
// the volume is not open; lvm.KindConflict: the request has no key, or a wrong one.
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
			return "", 0, lvm.Errorf(lvm.KindConflict, "the expansion of encrypted volume %s needs its key: name the Secret in the StorageClass with csi.storage.k8s.io/node-expand-secret-name and -namespace, or end the volume's pods and start them again", r.Handle)
		}
		if err := s.do(ctx, step, o); err != nil {
			return "", 0, err
		}
	}
	return "", 0, lvm.Errorf(lvm.KindInternal, "the mapping of volume %s has not grown; see the driver's log", r.Handle)
}

// Unstage closes a volume. It needs only the handle, and does nothing for a volume that is not open or not encrypted.
// lvm.KindInUse: something has the mapping open.
func (m *Manager) Unstage(ctx context.Context, handle string) error {
	return m.machine.removeMapping(ctx, mappingName(handle))
}

// Mapping returns the device of an open volume. It needs only the handle.
func (m *Manager) Mapping(handle string) (device string, number uint64, open bool, err error) {
	found, err := m.machine.mapping(mappingName(handle))
	if err != nil || !found.Live {
		return "", 0, false, err
	}
	return found.Path(), found.Number, true, nil
}

// Erase destroys the key slots of a volume before its deletion: after that no key decrypts its data. It first closes the volume
// (lvm.KindInUse). A repeated call continues where an interrupted one ended. The data stays readable in snapshots and clones, which
// have copies of the header.
func (m *Manager) Erase(ctx context.Context, v Volume) error {
	lock, err := m.machine.lock(ctx, v.Device)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := m.machine.removeMapping(ctx, v.name); err != nil {
		return err
	}
	o, err := m.machine.observe(v)
	if err != nil {
		return err
	}
	if o.Size < lvm.LUKSHeaderSize+lvm.LUKSMinDataSize {
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

// Check reads the header and the mapping, and returns a sentence about what is wrong; "": nothing. It starts no process.
func (m *Manager) Check(v Volume) (problem string, err error) {
	o, err := m.machine.observe(v)
	if err != nil {
		return "", err
	}
	return problemOf(v, o), nil
}

func problemOf(v Volume, o Observation) string {
	_, err := plan(v, o, progress{})
	switch {
	case lvm.KindOf(err) == lvm.KindInUse: // suspended for a snapshot, or in use by an admin
		return ""
	case err != nil:
		return err.Error()
	case o.Header.State == HeaderValid && o.Header.Copies == 1:
		return "one of the two copies of the LUKS header on " + v.Device + " is damaged: cryptsetup repairs it when the volume is opened next; check the disk"
	}
	return ""
}

// Suspend freezes the file system on an open volume and stops its I/O until resume is called: for a snapshot, LVM does that only
// if the file system is directly on the logical volume. For a volume that is not open it does nothing, and one that an admin
// suspended stays so. Between the two calls the caller must not wait for I/O on the volume. An error of resume with the kind
// lvm.KindBusy: the volume was resumed before, so its content changed meanwhile; it is not suspended.
func (m *Manager) Suspend(handle string) (resume func() error, err error) {
	name := mappingName(handle)
	found, err := m.machine.mapping(name)
	switch {
	case err != nil || !found.Live:
		return func() error { return nil }, err
	case found.Suspended:
		return func() error { return m.checkSuspended(handle, name) }, nil
	}
	m.stopped.Store(name, nil)
	if err := m.machine.suspend(name, true); err != nil {
		m.stopped.Delete(name)
		return nil, lvm.Errorf(lvm.KindInternal, "cannot suspend the mapping of volume %s: %w", handle, err)
	}
	return func() error { return m.resume(handle, name) }, nil
}

// resume ends Suspend. It also resumes a mapping whose state it cannot read.
func (m *Manager) resume(handle, name string) error {
	check := m.checkSuspended(handle, name)
	if lvm.KindOf(check) != lvm.KindBusy {
		if err := m.machine.suspend(name, false); err != nil {
			return lvm.Errorf(lvm.KindInternal, "volume %s is suspended, which blocks its pods; continue it with dmsetup resume %s: %w", handle, name, err)
		}
	}
	m.stopped.Delete(name)
	return check
}

// checkSuspended returns lvm.KindBusy if a mapping that was suspended is so no longer: cryptsetup resize or an admin resumed it.
func (m *Manager) checkSuspended(handle, name string) error {
	found, err := m.machine.mapping(name)
	if err == nil && !found.Suspended {
		return lvm.Errorf(lvm.KindBusy, "another program resumed or closed volume %s (mapping %s) during a snapshot of it; retry", handle, name)
	}
	return err
}

// Recover runs once when the driver starts, and before other calls. It resumes mappings that a killed driver left suspended, and
// removes those that a killed cryptsetup left without a table. The next Stage continues all other work that a crash or a reboot
// interrupted, and removes what Recover could not remove. The error joins those of the mappings that may still be suspended, so
// that Resume must be called; or it is ctx's.
func (m *Manager) Recover(ctx context.Context) error { return m.recoverAll(ctx, true) }

// Resume resumes the mappings that a killed driver left suspended. It may be called at any time, and its error is as Recover's.
func (m *Manager) Resume(ctx context.Context) error { return m.recoverAll(ctx, false) }

// recoverAll recovers all mappings at once: a resume thaws a file system, which blocks while the disk below does not answer.
func (m *Manager) recoverAll(ctx context.Context, remove bool) error {
	names, err := m.machine.mappings()
	if err != nil {
		return lvm.Errorf(lvm.KindInternal, "cannot list the mappings of encrypted volumes: %w", err)
	}
	ended := make(chan error, len(names))
	for _, name := range names {
		go func() { ended <- m.recoverOne(ctx, name, remove) }()
	}
	var failures []error
	for range names {
		select {
		case err := <-ended:
			failures = append(failures, err)
		case <-ctx.Done():
			return errors.Join(append(failures, ctx.Err())...)
		}
	}
	return errors.Join(failures...)
}

func (m *Manager) recoverOne(ctx context.Context, name string, remove bool) error {
	found, err := m.machine.mapping(name)
	if err != nil {
		return err
	}
	_, ours := m.stopped.Load(name)
	switch {
	case found.Exists && !found.Live && remove:
		m.log.InfoContext(ctx, "removing an encrypted mapping that has no table", "mapping", name)
		if err := m.machine.removeMapping(ctx, name); err != nil { // no I/O waits for it
			m.log.WarnContext(ctx, "cannot remove an encrypted mapping that has no table; the next NodeStageVolume of its volume retries", "mapping", name, "error", err)
		}
	case found.Live && found.Suspended && !found.Table.KeyGone && !ours: // an admin's luksSuspend wipes the key
		m.log.InfoContext(ctx, "resuming an encrypted mapping", "mapping", name)
		if err := m.machine.suspend(name, false); err != nil {
			return lvm.Errorf(lvm.KindInternal, "cannot resume the encrypted mapping %s: %w", name, err)
		}
	}
	return nil
}
