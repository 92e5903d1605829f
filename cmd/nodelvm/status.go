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

// codeOf is the one table from lvm's kinds of error to gRPC codes. What the callers make of them:
//   - ResourceExhausted in CreateVolume gives the claim back to the scheduler: another node may have room.
//   - Aborted, Canceled and DeadlineExceeded mean "perhaps under way": the same call comes again.
//   - FailedPrecondition and Internal are retried on this node until a person acts.
//   - InvalidArgument is retried slowly: only a changed request can help.
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

// codeOfPanic is the code for a call that panicked. The sidecars take Internal for the proof that a call which makes something
// has made nothing (checkError of csi-provisioner, isCSIFinalError of csi-snapshotter), and nothing is proved here.
func codeOfPanic(method string) codes.Code {
	switch method {
	case csi.Controller_CreateVolume_FullMethodName, csi.Controller_CreateSnapshot_FullMethodName:
		return codes.Aborted
	}
	return codes.Internal
}

// toStatus gives an error its gRPC code. One that has a status already keeps it.
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

// brief cuts the message of a status: its reader puts it into events and logs, and gRPC sends it in a header.
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

// withStatus is the interceptor that applies toStatus to every reply.
func withStatus(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, req)
	return reply, brief(toStatus(err))
}
