package lvm

import (
	"context"
	"errors"
)

// Extend makes a ready volume at least required bytes large and at most limit (0: no limit), online; one that has that
// size already is returned as it is. It never shrinks. At most three LVM processes. KindOutOfRange: the group or the pool
// has no room for it, the limit cannot be met in whole extents, or the request is negative; nothing was changed.
// KindNotFound, KindNotOurs: as Lookup; KindBusy: ask again.
func (h *Host) Extend(ctx context.Context, id ID, required, limit Bytes) (Volume, error) {
	return Volume{}, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}
