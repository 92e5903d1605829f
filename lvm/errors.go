package lvm

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classifies an error by what its reader can do. cmd/nodelvm maps kinds to gRPC codes.
type Kind int

const (
	KindInternal   Kind = iota // LVM or the kernel failed; the message quotes it
	KindInvalid                // the request is wrong in itself
	KindOutOfRange             // no node can provide the size: above the limit once rounded to extents, negative, overflowing

	KindExists   // a volume of another size or content has the name
	KindNotFound // proven absent: a readable volume group lacks it
	KindBusy     // retry: another operation is in flight, a disk is unresponsive, or an incomplete attempt may have left a volume

	KindInUse                // a device is open or something depends on it
	KindInsufficientCapacity // no free extents, no such volume group, or an ambiguous name: another node may have capacity
	KindNotLocal             // well-formed, but its volume group is not on this node

	KindNotManaged // a logical volume without this driver's tags, or of another cluster
	KindConflict   // a device, group or path is in a state that only an admin can change
)

// Error is the error of every exported function of the storage engine. Its text is a full sentence for an event: what was
// requested, what prevents it, what to do.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf formats an Error as fmt.Errorf does, with %w.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// KindOf returns the kind of any error: KindInternal for one of another package.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}

func Parenthesized(sentences []string) string {
	if len(sentences) == 0 {
		return ""
	}
	return " (" + strings.Join(sentences, "; ") + ")"
}

// UnplaceableError is in the chain of the error (KindInsufficientCapacity) that refuses a set of peers.
type UnplaceableError struct {
	Spec Spec // the peer that does not fit next to the larger ones
	Err  error
}

func (m *UnplaceableError) Error() string { return m.Err.Error() }

func (m *UnplaceableError) Unwrap() error { return m.Err }
