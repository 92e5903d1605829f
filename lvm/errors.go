package lvm

import (
	"errors"
	"fmt"
	"strings"
)

// Kind classes an error by what its reader can do about it. cmd/nodelvm holds the one table from kinds to gRPC codes.
type Kind int

const (
	KindInternal             Kind = iota // LVM or the kernel failed; the message carries their own words
	KindInvalid                          // the request can never be right
	KindOutOfRange                       // the size can never be met: over the limit once rounded to extents, negative, overflowing
	KindExists                           // the name is taken by a volume of another size or content
	KindNotFound                         // proven absent: a readable group lacks it
	KindBusy                             // another operation is under way, a disk does not answer, or what was begun may have left something: ask again
	KindInUse                            // a device is open or something depends on it
	KindInsufficientCapacity             // no extents, no such group, or an ambiguous one: another node may have capacity
	KindNotLocal                         // well-formed, but its group is not on this node
	KindNotManaged                       // a logical volume without this driver's tags, or of another cluster
	KindConflict                         // a device, group or path is in a state that only an admin can change
)

// Error is what every exported function of this package returns when it fails. Its text is a full sentence for the
// person who reads the event: what was asked, what stands in the way, what to do.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error the way fmt.Errorf does, %w included.
func Errorf(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// KindOf tells the kind of any error: KindInternal for one that is not of this package.
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
