package host

import (
	"context"
	"errors"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// pathInUse is the device that an open volume's file system is on: the mapping of an encrypted one, else that of the logical volume.
func (h *Host) pathInUse(v lvm.Volume, path string) (string, error) {
	if v.Class.Encryption == lvm.EncryptionNone || h.engine.Config.Encryption == nil {
		return path, nil
	}
	mapping, _, open, err := h.engine.Config.Encryption.Mapping(v.ID.String())
	if err != nil || !open {
		return path, err
	}
	return mapping, nil
}

// suspendLimit bounds how long a snapshot stops the I/O of an encrypted volume.
const suspendLimit = 10 * time.Second

// resumeAttempts bounds how often the driver tries to resume a mapping at once. After that it retries every resumePause.
const (
	resumeAttempts = 3
	resumePause    = 5 * time.Second
)

// suspend stops the I/O of an encrypted volume and freezes its file system while LVM takes a snapshot of it: LVM does so only for a file
// system directly on the logical volume. resume ends that, or the time limit, or another program: then it returns an error, as the
// snapshot may lack what was written before.
func (h *Host) suspend(v lvm.Volume, limit time.Duration) (resume func() error, err error) {
	if v.Class.Encryption == lvm.EncryptionNone || h.engine.Config.Encryption == nil {
		return func() error { return nil }, nil
	}
	end, err := h.engine.Config.Encryption.Suspend(v.ID.String())
	if err != nil {
		return nil, lvm.Errorf(lvm.KindOf(err), "cannot snapshot or clone volume %s/%s: %w", v.Group, v.ID.LV, err)
	}
	ended := make(chan error, 1)
	timer := time.AfterFunc(limit, func() { ended <- h.resumeMapping(v, end) })
	return func() error {
		if timer.Stop() {
			return h.resumeMapping(v, end)
		}
		late := lvm.Errorf(lvm.KindBusy, "LVM took more than %s for a snapshot of volume %s/%s, so the driver resumed the volume before its end; retry", limit, v.Group, v.ID.LV)
		return errors.Join(late, <-ended)
	}, nil
}

// resumeMapping calls end, which resumes a mapping, until the mapping is not suspended. If that takes too long, it returns end's error
// and continues in the background. KindBusy: another program resumed the mapping before.
func (h *Host) resumeMapping(v lvm.Volume, end func() error) (err error) {
	for range resumeAttempts {
		if err = end(); err == nil || lvm.KindOf(err) == lvm.KindBusy {
			return err
		}
		h.log.Error("cannot resume an encrypted volume after a snapshot; I/O to it waits, and the driver retries", "volume", v.ID.String(), "error", err)
	}
	h.tasks.Start(func(ctx context.Context) {
		for again := err; again != nil && lvm.KindOf(again) != lvm.KindBusy; again = end() {
			select {
			case <-ctx.Done(): // the next start resumes it
				return
			case <-time.After(resumePause):
			}
		}
	})
	return err
}
