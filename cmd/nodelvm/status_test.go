package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
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
			got := toStatus(csi.Node_NodeStageVolume_FullMethodName, test.err)
			if status.Code(got) != test.want {
				t.Errorf("%v got code %s, want %s", test.err, status.Code(got), test.want)
			}
			if test.err != nil && status.Convert(got).Message() == "" {
				t.Error("the message was lost")
			}
		})
	}
}

// TestCodesOfOneCall: codes from which the caller of one call concludes something else.
func TestCodesOfOneCall(t *testing.T) {
	for _, test := range []struct {
		method string
		kind   lvm.Kind
		want   codes.Code
	}{
		// The kubelet repeats NodeExpandVolume, and says why in an event: after FailedPrecondition it does neither.
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindConflict, codes.Internal},
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindInUse, codes.Internal},
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindNotLocal, codes.Internal},
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindNotManaged, codes.Internal},
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindBusy, codes.Aborted},
		{csi.Node_NodeExpandVolume_FullMethodName, lvm.KindNotFound, codes.NotFound},
		// A VolumeSnapshot that does not fit can be deleted: after ResourceExhausted it could not.
		{csi.Controller_CreateSnapshot_FullMethodName, lvm.KindInsufficientCapacity, codes.FailedPrecondition},
		{csi.Controller_CreateSnapshot_FullMethodName, lvm.KindBusy, codes.Aborted},
		{csi.Controller_CreateVolume_FullMethodName, lvm.KindInsufficientCapacity, codes.ResourceExhausted},
		{csi.Controller_CreateVolume_FullMethodName, lvm.KindConflict, codes.FailedPrecondition},
	} {
		_, err := withStatus(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: test.method}, func(context.Context, any) (any, error) {
			return nil, lvm.Errorf(test.kind, "x")
		})
		if status.Code(err) != test.want {
			t.Errorf("%v of %s: %s, want %s", test.kind, test.method, status.Code(err), test.want)
		}
	}
}
