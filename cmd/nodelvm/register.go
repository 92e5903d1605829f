package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/report"
)

// csiVersions are the CSI versions that the driver reports to the kubelet, which compares the major number.
var csiVersions = []string{"1.0.0"}

// registrar answers the kubelet, which finds its socket in plugins_registry (kubelet's plugin-registration API, version 1). The
// kubelet itself retries a registration that fails.
type registrar struct {
	registration.UnimplementedRegistrationServer
	log      *slog.Logger
	endpoint string // path of the CSI socket
	heard    *registered
}

// registered has the kubelet's last answer.
type registered struct {
	mu  sync.Mutex
	now report.Registration
}

func (r *registered) set(now report.Registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

func (r *registered) get() report.Registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              api.DriverName,
		Endpoint:          r.endpoint,
		SupportedVersions: csiVersions,
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(ctx context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if s.GetPluginRegistered() {
		r.heard.set(report.Registration{State: report.RegistrationDone})
		r.log.InfoContext(ctx, "registered with the kubelet", "driver", api.DriverName)
	} else {
		r.heard.set(report.Registration{State: report.RegistrationRefused, Error: s.GetError()})
		r.log.ErrorContext(ctx, "the kubelet refused the registration and will ask again", "error", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// registrySocket returns the path at which the kubelet expects the driver's registration socket.
func registrySocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", api.DriverName+"-reg.sock")
}

// registerRegistrar adds the registration service to the server. When the server stops, it removes its socket, and the kubelet
// unregisters the driver.
func registerRegistrar(server *grpc.Server, log *slog.Logger, endpoint string, heard *registered) {
	registration.RegisterRegistrationServer(server, &registrar{log: log, endpoint: endpoint, heard: heard})
}

// registerAgain returns a function that makes the kubelet register the driver again; nil without --kubelet-registration. The kubelet
// registers a driver whenever a socket appears in its directory, so the function moves the socket away and back.
func (d *driver) registerAgain() func() error {
	if !d.o.register {
		return nil
	}
	socket := registrySocket(d.o.kubeletDir)
	return func() error {
		away := filepath.Join(filepath.Dir(socket), "."+filepath.Base(socket)) // the kubelet ignores names that begin with a dot
		if err := os.Rename(socket, away); err != nil {
			return err
		}
		return os.Rename(away, socket)
	}
}
