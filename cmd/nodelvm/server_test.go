package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/internal/logs"
)

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugins", "csi.sock")
	listener, err := listen(t.Context(), path)
	must(t, err)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v; want permissions 0600", info.Mode(), err)
	}
	if _, err := listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "another process answers") {
		t.Errorf("a living socket was taken over: %v", err)
	}

	// A killed process leaves its socket behind.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, listener.Close())
	listener, err = listen(t.Context(), path)
	if err != nil {
		t.Fatalf("a dead socket is in the way: %v", err)
	}
	must(t, listener.Close())
}

func TestListenKeepsWhatIsNoSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "csi.sock")
	must(t, os.WriteFile(path, []byte("precious"), 0o600))
	if _, err := listen(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
		t.Errorf("the file is %q, %v", got, err)
	}
}

// panicking is a controller with a bug.
type panicking struct {
	csi.UnimplementedControllerServer
}

func (panicking) CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	panic("index out of range")
}

func (panicking) CreateSnapshot(context.Context, *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	panic("index out of range")
}

func (panicking) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	panic("index out of range")
}

func TestPanicBecomesAnError(t *testing.T) {
	var out bytes.Buffer
	log, err := logs.New(&out, "info", "json")
	must(t, err)
	registry := prometheus.NewRegistry()
	server := newServer(log, newCallMetrics(registry), &identity{}, panicking{}, csi.UnimplementedNodeServer{})
	path := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := listen(t.Context(), path)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	client := csi.NewControllerClient(dial(t, path))
	_, volume := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "v"})
	_, snapshot := client.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: "s"})
	_, deletion := client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "v"})
	for name, test := range map[string]struct {
		err  error
		code codes.Code
	}{
		"the caller must not forget the volume":   {volume, codes.Aborted},
		"the caller must not forget the snapshot": {snapshot, codes.Aborted},
		"it is asked again anyway":                {deletion, codes.Internal},
	} {
		if status.Code(test.err) != test.code || !strings.Contains(test.err.Error(), "index out of range") {
			t.Errorf("%s: got %v, want %s", name, test.err, test.code)
		}
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "server_test.go") {
		t.Errorf("no stack in the log: %s", out.String())
	}
	expectMetric(t, registry, "csi_plugin_operations_seconds", map[string]string{
		"driver_name": api.DriverName, "method_name": "/csi.v1.Controller/CreateVolume", "grpc_status_code": "Aborted",
	})
}

func dial(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// expectMetric fails unless one series of the family has all the labels.
func expectMetric(t *testing.T, gatherer prometheus.Gatherer, family string, labels map[string]string) {
	t.Helper()
	families, err := gatherer.Gather()
	must(t, err)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			found := 0
			for _, label := range metric.GetLabel() {
				if labels[label.GetName()] == label.GetValue() {
					found++
				}
			}
			if f.GetName() == family && found == len(labels) {
				return
			}
		}
	}
	t.Errorf("no metric %s%v", family, labels)
}
