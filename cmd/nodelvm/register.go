package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/statuspage"
)

// csiVersions are the CSI versions that the driver reports to the kubelet, which compares the major number.
var csiVersions = []string{"1.0.0"}

// registrar answers the kubelet, which finds its socket in plugins_registry and asks what is there (kubelet's
// plugin-registration API, version 1). A registration that fails is tried again by the kubelet itself.
type registrar struct {
	registration.UnimplementedRegistrationServer
	log      *slog.Logger
	endpoint string // path of the CSI socket
	heard    *registered
}

// registered remembers what the kubelet said last.
type registered struct {
	mu  sync.Mutex
	now statuspage.Registration
}

func (r *registered) set(now statuspage.Registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
}

func (r *registered) get() statuspage.Registration {
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
		r.heard.set(statuspage.Registration{State: statuspage.RegistrationDone})
		r.log.InfoContext(ctx, "registered with the kubelet", "driver", api.DriverName)
	} else {
		r.heard.set(statuspage.Registration{State: statuspage.RegistrationRefused, Error: s.GetError()})
		r.log.ErrorContext(ctx, "the kubelet refused the registration and will ask again", "error", s.GetError())
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// registrySocket is where the kubelet looks for the driver's registration.
func registrySocket(kubeletDir string) string {
	return filepath.Join(kubeletDir, "plugins_registry", api.DriverName+"-reg.sock")
}

// registerRegistrar lets the server answer the kubelet. The removal of its socket, when it stops, tells the kubelet to
// forget the driver.
func registerRegistrar(server *grpc.Server, log *slog.Logger, endpoint string, heard *registered) {
	registration.RegisterRegistrationServer(server, &registrar{log: log, endpoint: endpoint, heard: heard})
}
