package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/logs"
)

// newServer returns the gRPC server of the three CSI services. Its interceptors, from the outside in: they log and measure each
// call with the code that the caller sees, map an error to that code, and turn a panic into an error.
func newServer(log *slog.Logger, calls *callMetrics, id csi.IdentityServer, ctrl csi.ControllerServer, node csi.NodeServer) *grpc.Server {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(
			logCalls(log),
			calls.intercept,
			withStatus,
			recovery.UnaryServerInterceptor(recovery.WithRecoveryHandlerContext(func(ctx context.Context, p any) error {
				log.ErrorContext(ctx, "a call panicked", "panic", p, logs.StackKey, string(debug.Stack()))
				method, _ := grpc.Method(ctx)
				return status.Errorf(codeOfPanic(method), "the driver panicked: %v; its log has the stack", p)
			})),
		),
	)
	csi.RegisterIdentityServer(server, id)
	csi.RegisterControllerServer(server, ctrl)
	csi.RegisterNodeServer(server, node)
	return server
}

// listen opens a Unix socket that only root may use. It removes a socket that a killed process left, but no socket that a
// process still serves, and no other kind of file.
func listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the CSI socket %s: %w", path, err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("cannot create the CSI socket %s: a file that is not a socket has this path; move that file", path)
	}
	dialer := net.Dialer{Timeout: time.Second}
	if conn, err := dialer.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(fmt.Errorf("cannot create the CSI socket %s: another process answers on it; stop that process", path), conn.Close())
	}
	return os.Remove(path)
}

// stopServer waits for running calls until ctx ends, and then aborts the rest.
func stopServer(ctx context.Context, server *grpc.Server) {
	stopped := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-ctx.Done():
		server.Stop()
		<-stopped
	}
}
