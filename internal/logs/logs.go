// Package logs has the only logger of a process: one line for each entry, and no part of a request is long or begins a new line.
//
// The flow: New parses the flags; the handler cuts each message and value (cut.go), and zap encodes them.
//
// Caveat: New also sets the logger of klog, which a process has once.
package logs

import (
	"fmt"
	"io"
	"log/slog"
	"math"

	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// New returns the only logger of the process: zap's encoders behind slog's interface, so that package lvm needs only the
// standard library. It also routes klog (mount-utils, client-go) to this logger.
// An error says which flag is invalid.
func New(out io.Writer, level, format string) (*slog.Logger, error) {
	threshold, err := zapcore.ParseLevel(level)
	if err != nil || threshold > zapcore.ErrorLevel {
		return nil, fmt.Errorf("--log-level is %q; give debug, info, warn or error", level)
	}
	encoding := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		MessageKey:     "msg",
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.SecondsDurationEncoder,
	}
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(encoding)
	case "console":
		encoder = zapcore.NewConsoleEncoder(encoding)
	default:
		return nil, fmt.Errorf("--log-format is %q; give json or console", format)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), threshold)
	noStacks := zapslog.AddStacktraceAt(slog.Level(math.MaxInt)) // the text of an error names its origin
	logger := slog.New(cutting{zapslog.NewHandler(core, noStacks)})
	klog.SetSlogLogger(logger)
	return logger, nil
}
