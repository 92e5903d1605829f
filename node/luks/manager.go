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
	// removeMapping waits a little for a device that udev has open (lvm.KindInUse).
	removeMapping(ctx context.Context, name string) error
	// destroySlots overwrites the header and all key slots, and reads them back.
	destroySlots(v Volume) error
	mapping(name string) (Mapping, error)
	mappings() ([]string, error)
	cryptsetup(ctx context.Context, lock *os.File, args []string, keys ...*Key) error
}

// Config configures a Manager.
type Config struct {
	Log     *slog.Logger  // nil: slog.Default()
	Observe func(Command) // is called after each cryptsetup; may be nil
}

// Manager encrypts volumes. The caller works on one volume in one call at a time.
type Manager struct {
	machine machine
	log     *slog.Logger
	costly  chan struct{} // held while a cryptsetup may use argonMemory
}

// New returns a Manager for this node.
func New(c Config) *Manager {
	m := &Manager{machine: linux{observeCommand: c.Observe}, log: c.Log, costly: make(chan struct{}, 1)}
	if m.log == nil {
		m.log = slog.Default()
	}
	return m
}

// Request asks for an open volume.
type Request struct {
	Volume
	Keys    Keys
	Options Options
	// Blank proves that nothing is on the logical volume, or returns an error. It is called only before a format.
	Blank func(context.Context) error
}

// maxSteps is more than any state needs: a format that follows an interrupted one has seven.
const maxSteps = 12

// Stage formats a blank volume, opens it, and resizes its mapping; it returns the mapping's device. It is idempotent. lvm.KindInvalid:
// the Secret; lvm.KindConflict: a wrong key, or a header that is damaged, erased or not the volume's; lvm.KindInUse: another
// program has the volume open; lvm.KindBusy: an earlier command has not ended.
func (m *Manager) Stage(ctx context.Context, r Request) (device string, err error) {
	lock, err := m.machine.lock(ctx, r.Device)
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Close() }()
	s := stage{Manager: m, Request: r, lock: lock}
	for range maxSteps {
		o, err := m.machine.observe(r.Volume)
		if err != nil {
			return "", err
		}
		step, err := plan(r.Volume, o, s.progress)
		if err != nil {
			return "", err
		}
		if step == StepNothing {
			return o.Mapping.Path(), s.rotateIfNeeded(ctx, o)
		}
		if err := s.do(ctx, step, o); err != nil {
			return "", err
		}
	}
	return "", lvm.Errorf(lvm.KindInternal, "volume %s is not open after %d steps; see the driver's log", r.Handle, maxSteps)
}

// stage is one call of Stage.
type stage struct {
	*Manager
	Request
	progress
	lock     *os.File
	unlocked *Key // the key that opened the volume in this call
}

func (s *stage) do(ctx context.Context, step Step, o Observation) error {
	s.log.InfoContext(ctx, "encrypted volume", "step", step.String(), "volume", s.Handle, "device", s.Device)
	switch step {
	case StepNothing:
	case StepWriteMark:
		if err := s.proveBlank(ctx); err != nil {
			return err
		}
		return s.machine.writeMark(s.Volume, MarkFormatting)
	case StepFormat:
		return s.format(ctx, o)
	case StepSetUUID: // the mark first: with the volume's own UUID, nothing but the header would tell that it is formatted
		if err := s.machine.writeMark(s.Volume, MarkFormatted); err != nil {
			return err
		}
		return s.machine.cryptsetup(ctx, s.lock, setUUIDArgs(s.Volume))
	case StepOpen:
		return s.open(ctx, o)
	case StepClearMapping:
		s.cleared = true
		return s.machine.clearMapping(o.Mapping)
	case StepRemoveMark:
		return s.machine.writeMark(s.Volume, MarkFormatted)
	case StepResize:
		_, err := s.withKey(ctx, o.Header, resizeArgs(s.Volume))
		return err
	case StepRemoveMapping:
		return s.machine.removeMapping(ctx, MappingName(s.Handle))
	}
	return nil
}

func (s *stage) proveBlank(ctx context.Context) error {
	if s.Blank == nil {
		return lvm.Errorf(lvm.KindConflict, "volume %s (%s) has no LUKS header, and is not to be formatted here", s.Handle, s.Device)
	}
	return s.Blank(ctx)
}

// format proves again that nothing else is on the device, unless a header is that a luksFormat began, or what it left of one.
func (s *stage) format(ctx context.Context, o Observation) error {
	if o.Header.State == HeaderNone && !o.Header.Remains {
		if err := s.proveBlank(ctx); err != nil {
			return err
		}
	}
	if err := s.run(ctx, o.Header, formatArgs(s.Volume, s.Keys.Current, sectorSize(s.Block, o.Logical)), s.Keys.Current); err != nil {
		return err
	}
	s.formatted = true
	return nil
}

func (s *stage) open(ctx context.Context, o Observation) (err error) {
	s.unlocked, err = s.withKey(ctx, o.Header, openArgs(s.Volume, s.Options))
	return err
}

// Expand resizes the mapping of an open volume to its logical volume, and returns its device and size. lvm.KindNotFound: it is not
// open. The key is needed only if the mapping is too small.
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
			return o.Mapping.Path(), o.Mapping.Size, nil
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
	case err != nil:
		h.Problem = err.Error()
	case o.Header.State == HeaderValid && o.Header.Copies == 1:
		h.Problem = "one of the two copies of the LUKS header on " + v.Device + " is damaged: cryptsetup repairs it when the volume is opened next; check the disk"
	}
	return h, nil
}

// Recover removes mappings that a killed cryptsetup has left without a table. Everything else that a crash or a reboot leaves, the next
// Stage continues.
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
		if !found.Exists || found.Live {
			continue
		}
		m.log.InfoContext(ctx, "removing an encrypted mapping that has no table", "mapping", name)
		if err := m.machine.removeMapping(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
