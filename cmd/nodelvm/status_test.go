package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestToStatus(t *testing.T) {
	for _, test := range []struct {
		name string
		err  error
		want codes.Code
	}{
		{"none", nil, codes.OK},
		{"invalid", lvm.Errorf(lvm.KindInvalid, "x"), codes.InvalidArgument},
		{"out of range", lvm.Errorf(lvm.KindOutOfRange, "x"), codes.OutOfRange},
		{"exists", lvm.Errorf(lvm.KindExists, "x"), codes.AlreadyExists},
		{"not found", lvm.Errorf(lvm.KindNotFound, "x"), codes.NotFound},
		{"busy", lvm.Errorf(lvm.KindBusy, "x"), codes.Aborted},
		{"in use", lvm.Errorf(lvm.KindInUse, "x"), codes.FailedPrecondition},
		{"no room", lvm.Errorf(lvm.KindInsufficientCapacity, "x"), codes.ResourceExhausted},
		{"not local", lvm.Errorf(lvm.KindNotLocal, "x"), codes.FailedPrecondition},
		{"not managed", lvm.Errorf(lvm.KindNotManaged, "x"), codes.FailedPrecondition},
		{"conflict", lvm.Errorf(lvm.KindConflict, "x"), codes.FailedPrecondition},
		{"foreign content", lvm.Errorf(lvm.KindConflict, "x"), codes.FailedPrecondition},
		{"internal", lvm.Errorf(lvm.KindInternal, "x"), codes.Internal},
		{"wrapped", fmt.Errorf("node n: %w", lvm.Errorf(lvm.KindInsufficientCapacity, "x")), codes.ResourceExhausted},
		{"of another package", errors.New("x"), codes.Internal},
		{"caller went away", fmt.Errorf("waiting: %w", context.Canceled), codes.Canceled},
		{"caller's time is up", fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{"a read cut short", lvm.Errorf(lvm.KindInternal, "vgs: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		{"busy until the time was up", lvm.Errorf(lvm.KindBusy, "still at it: %w", context.DeadlineExceeded), codes.Aborted},
		{"a status already", status.Error(codes.Aborted, "x"), codes.Aborted},
		{"a wrapped status", fmt.Errorf("call: %w", status.Error(codes.NotFound, "x")), codes.NotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := toStatus(test.err)
			if status.Code(got) != test.want {
				t.Errorf("%v got code %s, want %s", test.err, status.Code(got), test.want)
			}
			if test.err != nil && status.Convert(got).Message() == "" {
				t.Error("the message was lost")
			}
		})
	}
}
