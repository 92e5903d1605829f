package host

import "context"

// ExtendThinPools extends the thin pools that exceed their autoextend threshold, and removes those that have been empty for
// long enough. A pool that needs nothing costs one query of the kernel and no process. The error joins those of the pools. A
// blocked group delays no other.
func (h *Host) ExtendThinPools(ctx context.Context) error { return h.pools.ExtendDue(ctx) }
