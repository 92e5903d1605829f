package main

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
)

// codeIn is the one table from lvm's kinds of error to the gRPC codes of a call. What its callers conclude from a code, in Kubernetes 1.36:
//
//   - CreateVolume (checkError of csi-provisioner): after ResourceExhausted the scheduler gets the claim back, because another node may have
//     capacity. After Aborted, Canceled, DeadlineExceeded and Unavailable a volume may exist, and the call is repeated even if the claim is deleted.
//     After any other code none exists, and the call is repeated on this node while the claim does.
//   - CreateSnapshot (isCSIFinalError of csi-snapshotter): after the same four codes, and after ResourceExhausted, a snapshot may exist, and the
//     VolumeSnapshot cannot be deleted before a call succeeds. After any other code none exists. All are repeated.
//   - NodeExpandVolume (the kubelet's pkg/volume/csi/expander.go): FailedPrecondition means that a volume in use cannot be expanded: no event says so,
//     and the call is not repeated until the volume's last pod on the node ends. InvalidArgument, OutOfRange and NotFound mark the expansion as
//     infeasible; package kube requests it again. After any other code the kubelet writes an event and a condition of the claim, and repeats the call.
//   - The other calls of the kubelet (isFinalError of its pkg/volume/csi/csi_client.go): after Aborted, Canceled, DeadlineExceeded, Unavailable and
//     ResourceExhausted the volume may be mounted, and the kubelet undoes that when the pod ends. All are repeated, with an event.
//   - DeleteVolume, DeleteSnapshot, GetCapacity, lists: any error is repeated.
func codeIn(method string, kind lvm.Kind) codes.Code {
	code := codeOf(kind)
	switch {
	case method == csi.Node_NodeExpandVolume_FullMethodName && code == codes.FailedPrecondition:
		return codes.Internal
	case method == csi.Controller_CreateSnapshot_FullMethodName && code == codes.ResourceExhausted:
		return codes.FailedPrecondition // the driver has proved that no snapshot exists (controller/outcome.go)
	}
	return code
}

// codeOf returns the code of a kind in the calls that codeIn does not except.
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

// toStatus returns an error of a call with its gRPC code. An error that has a status keeps it.
func toStatus(method string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	var ours *lvm.Error
	switch {
	case errors.As(err, &ours) && ours.Kind != lvm.KindInternal:
		return status.Error(codeIn(method, ours.Kind), err.Error())
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
	message := logs.Cut(whole.Message())
	if message == whole.Message() {
		return err
	}
	short := whole.Proto()
	short.Message = message
	return status.ErrorProto(short)
}

// withStatus is the interceptor that applies toStatus and brief to every reply.
func withStatus(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, req)
	return reply, brief(toStatus(info.FullMethod, err))
}
