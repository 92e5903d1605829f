package luks

import (
	"context"
	"os"

	"github.com/nodelvm/nodelvm/lvm"
)

// Request is a request for an open volume.
type Request struct {
	Volume
	Keys     Keys
	Discards bool // the mapping passes discards
	ReadOnly bool // a new mapping takes no writes
	// Blank proves that the logical volume is blank, or returns an error. Stage calls it only before a format.
	Blank func(context.Context) error
	// Formatted is called after each luksFormat, before anything is open on the logical volume. Cleared is called with the new mapping, after
	// Stage has cleared the places of superblocks there. Both may be nil, and are repeated after a crash.
	Formatted func() error
	Cleared   func(mapping string) error
}

// maxSteps is more than any state needs: a format that follows an interrupted one has eight.
const maxSteps = 12

// Stage formats a blank volume, opens it, and resizes its mapping; it returns the mapping's device. It is idempotent.
// lvm.KindInvalid: the Secret is wrong; lvm.KindConflict: a wrong key, or a header that is damaged, erased or not the volume's;
// lvm.KindInUse: another program has the volume open; lvm.KindBusy: an earlier command has not ended.
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
			if err := m.machine.ensureName(r.name, o.Mapping); err != nil {
				return "", err
			}
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
	case StepTakeMark:
		return s.machine.writeMark(s.Volume, MarkFormatting)
	case StepFormat:
		return s.format(ctx, o)
	case StepSetUUID: // the mark first: once the header has the volume's own UUID, only the header would show that the volume was formatted
		if err := s.machine.writeMark(s.Volume, MarkFormatted); err != nil {
			return err
		}
		return s.machine.cryptsetup(ctx, s.lock, setUUIDArgs(s.Volume))
	case StepOpen:
		return s.open(ctx, o)
	case StepClearMapping:
		s.cleared = true
		if err := s.machine.clearMapping(o.Mapping); err != nil || s.Cleared == nil {
			return err
		}
		return s.Cleared(o.Mapping.Path())
	case StepRemoveMark:
		return s.machine.writeMark(s.Volume, MarkFormatted)
	case StepResize:
		_, err := s.withKey(ctx, o.Header, resizeArgs(s.Volume))
		return err
	case StepRemoveMapping:
		return s.machine.removeMapping(ctx, s.name)
	}
	return nil
}

func (s *stage) proveBlank(ctx context.Context) error {
	if s.Blank == nil {
		return lvm.Errorf(lvm.KindConflict, "volume %s (%s) has no LUKS header, and this request may not format it", s.Handle, s.Device)
	}
	return s.Blank(ctx)
}

// format proves again that the device is blank, unless it has a header, or the remains of one, from an interrupted luksFormat.
func (s *stage) format(ctx context.Context, o Observation) error {
	if o.Header.State == HeaderNone && !o.Header.Remains {
		if err := s.proveBlank(ctx); err != nil {
			return err
		}
	}
	if err := s.run(ctx, o.Header, formatArgs(s.Volume, s.Keys.Current, sectorSize(s.Block, o.Logical)), s.Keys.Current); err != nil {
		return err
	}
	if s.Formatted != nil {
		if err := s.Formatted(); err != nil {
			return err
		}
	}
	s.formatted = true
	return nil
}

func (s *stage) open(ctx context.Context, o Observation) (err error) {
	s.unlocked, err = s.withKey(ctx, o.Header, openArgs(s.Volume, s.Discards, s.ReadOnly))
	return err
}
