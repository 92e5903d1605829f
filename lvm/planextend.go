package lvm

import "errors"

// extension is what makes a volume larger.
type extension struct {
	volume Volume // as it will be
	steps  []step // none: it has that size already
}

// planExtend decides how a ready volume gets at least required bytes and at most limit (0: no limit). KindOutOfRange: it
// cannot have them, and what it can have is said.
func planExtend(s State, v Volume, required, limit Bytes) (extension, error) {
	return extension{}, Errorf(KindInternal, "%w", errors.ErrUnsupported)
}
