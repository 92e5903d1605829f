package lvm

// UnplaceableError is in the chain of the error (KindInsufficientCapacity) that refuses volumes which are of use only together.
type UnplaceableError struct {
	Spec Spec // the one of them that found no room beside the larger ones
	Err  error
}

func (m *UnplaceableError) Error() string { return m.Err.Error() }

func (m *UnplaceableError) Unwrap() error { return m.Err }
