package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/logs"
)

func TestCallsAreLoggedWithoutSecrets(t *testing.T) {
	req := &csi.NodeStageVolumeRequest{VolumeId: "vol-1", StagingTargetPath: "/stage", Secrets: map[string]string{"password": "swordfish"}}
	for _, test := range []struct {
		name  string
		level string
		err   error
		want  []string // in the one line; none: no line
	}{
		{"success at info", "info", nil, []string{`"level":"info"`, `"call":"NodeStageVolume"`, `"volume":"vol-1"`}},
		{"success at warn", "warn", nil, nil},
		{"success at debug", "debug", nil, []string{"/stage", "***stripped***", "reply"}},
		{"caller's fault", "warn", status.Error(codes.Aborted, "later"), []string{`"level":"warn"`, `"code":"Aborted"`, `"error":"later"`}},
		{"our fault", "error", status.Error(codes.Internal, "boom"), []string{`"level":"error"`, "boom"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out bytes.Buffer
			log, err := logs.New(&out, test.level, "json")
			must(t, err)
			handler := func(context.Context, any) (any, error) { return &csi.NodeStageVolumeResponse{}, test.err }
			info := &grpc.UnaryServerInfo{FullMethod: csi.Node_NodeStageVolume_FullMethodName}
			if _, err := logCalls(log)(context.Background(), req, info, handler); !errors.Is(err, test.err) {
				t.Errorf("the error became %v", err)
			}
			got := out.String()
			if strings.Contains(got, "swordfish") {
				t.Errorf("the secret is in the log: %s", got)
			}
			if lines := strings.Count(got, "\n"); (len(test.want) > 0) != (lines == 1) {
				t.Errorf("%d lines: %s", lines, got)
			}
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("no %s in %s", want, got)
				}
			}
		})
	}
}

func TestLevelOfProbes(t *testing.T) {
	if got := levelOf(csi.Identity_Probe_FullMethodName, codes.OK); got != slog.LevelDebug {
		t.Errorf("a probe is logged at %s", got)
	}
	if got := levelOf(csi.Node_NodeExpandVolume_FullMethodName, codes.Unimplemented); got != slog.LevelDebug {
		t.Errorf("a call that is not there is logged at %s", got)
	}
}
