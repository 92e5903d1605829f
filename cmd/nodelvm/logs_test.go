package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

func TestLoggerKeepsItsLevel(t *testing.T) {
	for level, want := range map[string][]string{
		"debug": {"d", "i", "w", "e"},
		"info":  {"i", "w", "e"},
		"warn":  {"w", "e"},
		"error": {"e"},
	} {
		var out bytes.Buffer
		log, err := newLogger(&out, level, "json")
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("d")
		log.Info("i")
		log.Warn("w")
		log.Error("e", "error", errors.New("boom"))
		var got []string
		for line := range strings.Lines(out.String()) {
			var entry struct{ Msg, Level, Time string }
			if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Time == "" || entry.Level == "" {
				t.Fatalf("not a log entry: %s (%v)", line, err)
			}
			got = append(got, entry.Msg)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("at level %s: %q, want %q", level, got, want)
		}
	}
}

func TestKlogIsRouted(t *testing.T) {
	var out bytes.Buffer
	if _, err := newLogger(&out, "info", "console"); err != nil {
		t.Fatal(err)
	}
	klog.InfoS("from a library", "disk", "sda")
	klog.V(4).InfoS("too much")
	if got := out.String(); !strings.Contains(got, "from a library") || !strings.Contains(got, "sda") || strings.Contains(got, "too much") {
		t.Errorf("klog wrote %q", got)
	}
}

func TestLoggerRefuses(t *testing.T) {
	for _, flags := range [][2]string{{"verbose", "json"}, {"fatal", "json"}, {"info", "xml"}, {"", ""}} {
		if _, err := newLogger(&bytes.Buffer{}, flags[0], flags[1]); err == nil {
			t.Errorf("level %q and format %q were accepted", flags[0], flags[1])
		}
	}
}

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
			log, err := newLogger(&out, test.level, "json")
			if err != nil {
				t.Fatal(err)
			}
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
