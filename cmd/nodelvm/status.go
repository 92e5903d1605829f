package main

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

// codeOf is the one table from lvm's kinds of error to gRPC codes. What the callers do:
//   - ResourceExhausted in CreateVolume: the scheduler gets the claim back, because another node may have capacity.
//   - Aborted, Canceled and DeadlineExceeded mean "perhaps in flight": the caller repeats the call.
//   - FailedPrecondition and Internal: the caller retries on this node until an admin acts.
//   - InvalidArgument: the caller retries slowly, and only a changed request can succeed.
func codeOf(kind lvm.Kind) codes.Code {
	switch kind {
	case lvm.KindInvalid:
		return codes.InvalidArgument
	case lvm.KindOutOfRange:
		return codes.OutOfRange
	case lvm.KindExists:
		return codes.AlreadyExists
	case lvm.KindNotFound:
		return codes.NotFound
	case lvm.KindBusy:
		return codes.Aborted
	case lvm.KindInUse, lvm.KindNotLocal, lvm.KindNotManaged, lvm.KindConflict:
		return codes.FailedPrecondition
	case lvm.KindInsufficientCapacity:
		return codes.ResourceExhausted
	case lvm.KindInternal:
		return codes.Internal
	}
	return codes.Internal
}

// codeOfPanic returns the code for a call that panicked. From Internal the sidecars would conclude that the call created
// nothing (checkError of csi-provisioner, isCSIFinalError of csi-snapshotter), which a panic does not prove.
func codeOfPanic(method string) codes.Code {
	switch method {
	case csi.Controller_CreateVolume_FullMethodName, csi.Controller_CreateSnapshot_FullMethodName:
		return codes.Aborted
	}
	return codes.Internal
}

// toStatus returns an error with its gRPC code. An error that has a status keeps it.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var ours *lvm.Error
	switch {
	case errors.As(err, &ours) && ours.Kind != lvm.KindInternal:
		return status.Error(codeOf(ours.Kind), err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	}
	return status.Error(codes.Internal, err.Error())
}

// brief truncates the message of a status: the caller puts it into events and logs, and gRPC sends it in a header.
func brief(err error) error {
	if err == nil {
		return nil
	}
	whole := status.Convert(err)
	message := cut(whole.Message())
	if message == whole.Message() {
		return err
	}
	short := whole.Proto()
	short.Message = message
	return status.ErrorProto(short)
}

// withStatus is the interceptor that applies toStatus and brief to every reply.
func withStatus(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, req)
	return reply, brief(toStatus(err))
}
