package lvm

// UnplaceableError is in the chain of the error (KindInsufficientCapacity) that refuses a set of peers.
type UnplaceableError struct {
	Spec Spec // the peer that does not fit next to the larger ones
	Err  error
}

func (m *UnplaceableError) Error() string { return m.Err.Error() }

func (m *UnplaceableError) Unwrap() error { return m.Err }
