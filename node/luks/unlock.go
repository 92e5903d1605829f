package luks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// run runs cryptsetup. A command that may need argonMemory waits for its turn.
func (s *stage) run(ctx context.Context, h Header, args []string, keys ...*Key) error {
	needsMemory := slices.ContainsFunc(h.Slots, func(slot Slot) bool { return slot.Function != "pbkdf2" }) ||
		slices.ContainsFunc(keys, func(k *Key) bool { return !k.random })
	if needsMemory {
		release, err := s.acquireTurn(ctx)
		if err != nil {
			return err
		}
		defer release()
	}
	return s.machine.cryptsetup(ctx, s.lock, args, keys...)
}

// maxTurn is far longer than a derivation. A cryptsetup that takes longer waits for its disk, and libcryptsetup has freed
// argonMemory: it does so before it reads or writes a key slot. So volumes on other disks need not wait any longer.
const maxTurn = 2 * time.Minute

// acquireTurn waits until no other cryptsetup may use argonMemory. lvm.KindBusy: ctx ended before that.
func (s *stage) acquireTurn(ctx context.Context) (release func(), err error) {
	select {
	case s.costly <- struct{}{}:
	case <-ctx.Done():
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s waits for other volumes with a passphrase to be opened: %w", s.Handle, ctx.Err())
	}
	once := sync.OnceFunc(func() { <-s.costly })
	timer := time.AfterFunc(maxTurn, func() {
		s.log.WarnContext(ctx, "cryptsetup does not end: is the disk unresponsive? Other volumes with a passphrase do not wait for it any longer",
			"volume", s.Handle, "device", s.Device, "after", maxTurn)
		once()
	})
	return func() { timer.Stop(); once() }, nil
}

// withKey runs a command with the current key or, if that opens no slot, with the previous one. It returns the key that opened one.
func (s *stage) withKey(ctx context.Context, h Header, args []string) (*Key, error) {
	if s.Keys.Current == nil {
		return nil, lvm.Errorf(lvm.KindInvalid, "volume %s is encrypted, and the request has no key", s.Handle)
	}
	err := s.run(ctx, h, args, s.Keys.Current)
	if !isWrongKey(err) {
		return s.Keys.Current, err
	}
	if s.Keys.Previous == nil {
		return nil, wrongKey(s.Volume, false)
	}
	if err = s.run(ctx, h, args, s.Keys.Previous); isWrongKey(err) {
		return nil, wrongKey(s.Volume, true)
	}
	return s.Keys.Previous, err
}

// rotateIfNeeded omits the tests of keys if the current one has just opened the only slot.
func (s *stage) rotateIfNeeded(ctx context.Context, o Observation) error {
	if s.Keys.Previous == nil || s.unlocked == s.Keys.Current && len(usable(o.Header.Slots)) == 1 {
		return nil
	}
	return s.rotate(ctx, o)
}

// rotate replaces the previous key by the current one. The volume stays open or closed.
func (s *stage) rotate(ctx context.Context, o Observation) error {
	opened, err := s.openers(ctx, o.Header)
	if err != nil {
		return err
	}
	add, remove, err := planRotation(s.Volume, opened)
	if err != nil {
		return err
	}
	if add {
		if err := s.addKey(ctx, o.Header, opened); err != nil {
			return err
		}
	}
	for _, slot := range remove {
		s.log.InfoContext(ctx, "removing the key slot of the previous key", "volume", s.Handle, "device", s.Device, "slot", slot)
		if err := s.run(ctx, o.Header, removeSlotArgs(s.Volume, slot), s.Keys.Current); err != nil {
			return err
		}
	}
	after, err := s.machine.observe(s.Volume)
	if err != nil {
		return err
	}
	for _, slot := range after.Header.Slots {
		if slices.Contains(remove, slot.Number) {
			return lvm.Errorf(lvm.KindInternal, "the previous key of volume %s still has key slot %d; the driver retries at the next stage", s.Handle, slot.Number)
		}
	}
	return nil
}

// openers tests the keys on each slot, and returns which one opens it.
func (s *stage) openers(ctx context.Context, h Header) (map[int]opener, error) {
	found := map[int]opener{}
	for _, slot := range usable(h.Slots) {
		found[slot.Number] = opensOther
		for _, candidate := range []struct {
			by  opener
			key *Key
		}{{opensCurrent, s.Keys.Current}, {opensPrevious, s.Keys.Previous}} {
			err := s.run(ctx, h, testArgs(s.Volume, slot.Number), candidate.key)
			if err == nil {
				found[slot.Number] = candidate.by
				break
			}
			if !isWrongKey(err) {
				return nil, err
			}
		}
	}
	return found, nil
}

// addKey adds the current key, and proves that it opens the new slot.
func (s *stage) addKey(ctx context.Context, h Header, before map[int]opener) error {
	s.log.InfoContext(ctx, "adding a key slot for the new key", "volume", s.Handle, "device", s.Device)
	if err := s.run(ctx, h, addKeyArgs(s.Volume, s.Keys.Current), s.Keys.Previous, s.Keys.Current); err != nil {
		return err
	}
	o, err := s.machine.observe(s.Volume)
	if err != nil {
		return err
	}
	for _, slot := range usable(o.Header.Slots) {
		if _, old := before[slot.Number]; !old {
			return s.run(ctx, o.Header, testArgs(s.Volume, slot.Number), s.Keys.Current)
		}
	}
	return lvm.Errorf(lvm.KindInternal, "the new key of volume %s has no key slot after cryptsetup luksAddKey (slots before: %d); the previous key still opens it",
		s.Handle, slices.Sorted(maps.Keys(before)))
}

func isWrongKey(err error) bool {
	var exit *exitError
	return errors.As(err, &exit) && exit.code == exitWrongKey
}
