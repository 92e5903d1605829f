package lvm

// Misfit is in the chain of the error (KindInsufficientCapacity) that refuses volumes which are of use only together.
type Misfit struct {
	Spec Spec // the one of them that found no room beside the larger ones
	Err  error
}

func (m *Misfit) Error() string { return m.Err.Error() }

func (m *Misfit) Unwrap() error { return m.Err }
