package main

import (
	"context"
	"log/slog"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/api"
)

// changing has the calls whose success the driver logs at level info. The sidecars and the kubelet repeat the others often.
var changing = map[string]bool{
	csi.Controller_CreateVolume_FullMethodName:           true,
	csi.Controller_DeleteVolume_FullMethodName:           true,
	csi.Controller_ControllerExpandVolume_FullMethodName: true,
	csi.Controller_CreateSnapshot_FullMethodName:         true,
	csi.Controller_DeleteSnapshot_FullMethodName:         true,

	csi.GroupController_CreateVolumeGroupSnapshot_FullMethodName: true,
	csi.GroupController_DeleteVolumeGroupSnapshot_FullMethodName: true,

	csi.Node_NodeStageVolume_FullMethodName:     true,
	csi.Node_NodeUnstageVolume_FullMethodName:   true,
	csi.Node_NodePublishVolume_FullMethodName:   true,
	csi.Node_NodeUnpublishVolume_FullMethodName: true,
	csi.Node_NodeExpandVolume_FullMethodName:    true,
}

// logCalls is the interceptor that logs each call once, when it ends. At level debug it adds the request and the reply, without
// their secrets. The logger truncates long values.
func logCalls(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		start := time.Now()
		reply, err := handler(ctx, req)
		level := levelOf(info.FullMethod, status.Code(err))
		if !log.Enabled(ctx, level) {
			return reply, err
		}
		attrs := []any{"call", path.Base(info.FullMethod), "took", time.Since(start)}
		attrs = append(attrs, subject(req)...)
		if log.Enabled(ctx, slog.LevelDebug) {
			attrs = append(attrs, "request", protosanitizer.StripSecrets(req))
			if err == nil {
				attrs = append(attrs, "reply", protosanitizer.StripSecrets(reply))
			}
		}
		if err != nil {
			attrs = append(attrs, "code", status.Code(err).String(), "error", status.Convert(err).Message())
		}
		log.Log(ctx, level, "csi", attrs...)
		return reply, err
	}
}

// levelOf returns the log level of a call: error for a failure of the driver, warning if the caller can correct or retry it.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		if changing[method] {
			return slog.LevelInfo
		}
		return slog.LevelDebug
	case codes.Unimplemented:
		return slog.LevelDebug
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	default:
		return slog.LevelWarn
	}
}

// subject returns the log attributes that name a request's volume or snapshot.
func subject(req any) []any {
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		return []any{"volume", r.GetVolumeId()}
	case interface{ GetSnapshotId() string }:
		return []any{"snapshot", r.GetSnapshotId()}
	case interface{ GetGroupSnapshotId() string }:
		return []any{"group_snapshot", r.GetGroupSnapshotId()}
	case *csi.CreateVolumeGroupSnapshotRequest:
		return []any{"name", r.GetName(), "volumes", len(r.GetSourceVolumeIds())}
	case *csi.CreateVolumeRequest:
		return []any{"name", r.GetName()}
	case *csi.CreateSnapshotRequest:
		return []any{"name", r.GetName(), "volume", r.GetSourceVolumeId()}
	}
	return nil
}

// callMetrics measures CSI calls, with the metric and labels of the CSI sidecars' library, so that existing dashboards work.
type callMetrics struct {
	seconds *prometheus.HistogramVec
}

func newCallMetrics(registry prometheus.Registerer) *callMetrics {
	m := &callMetrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:        "csi_plugin_operations_seconds",
		Help:        "Duration of CSI calls by method and gRPC status code.",
		ConstLabels: prometheus.Labels{"driver_name": api.DriverName},
		Buckets:     []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600},
	}, []string{"method_name", "grpc_status_code"})}
	registry.MustRegister(m.seconds)
	return m
}

func (m *callMetrics) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	reply, err := handler(ctx, req)
	m.seconds.WithLabelValues(info.FullMethod, status.Code(err).String()).Observe(time.Since(start).Seconds())
	return reply, err
}
