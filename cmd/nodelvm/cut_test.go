package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/internal/logs"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/node"
)

// TestLongRequestsWriteLittle: the log and the answer hold at most a few kibibytes of each field of a request, and no part of it
// begins a new line.
func TestLongRequestsWriteLittle(t *testing.T) {
	huge := strings.Repeat("A\n{\"level\":\"error\"}\x1b", 150_000) // 3 MB
	mount := func(fsType string, flags ...string) []*csi.VolumeCapability {
		return []*csi.VolumeCapability{{
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: flags}},
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}}
	}
	create := func(change func(*csi.CreateVolumeRequest)) func(context.Context, csiClients) error {
		req := &csi.CreateVolumeRequest{Name: "v", VolumeCapabilities: mount(""), Parameters: map[string]string{"volumeGroup": "vg"}}
		change(req)
		return func(ctx context.Context, c csiClients) error {
			_, err := c.controller.CreateVolume(ctx, req)
			return err
		}
	}
	topologies := make([]*csi.Topology, 20_000)
	for i := range topologies {
		topologies[i] = &csi.Topology{Segments: map[string]string{"zone": fmt.Sprintf("a zone with a name of some length, and the number %d", i)}}
	}
	for name, call := range map[string]func(context.Context, csiClients) error{
		"name":        create(func(r *csi.CreateVolumeRequest) { r.Name = huge }),
		"parameter":   create(func(r *csi.CreateVolumeRequest) { r.Parameters[huge] = "x" }),
		"value":       create(func(r *csi.CreateVolumeRequest) { r.Parameters["layout"] = huge }),
		"group":       create(func(r *csi.CreateVolumeRequest) { r.Parameters["volumeGroup"] = huge }),
		"claim":       create(func(r *csi.CreateVolumeRequest) { r.Parameters["csi.storage.k8s.io/pvc/name"] = huge }),
		"file system": create(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = mount(huge) }),
		"topologies": create(func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: topologies}
		}),
		"handle": func(ctx context.Context, c csiClients) error {
			_, err := c.controller.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: huge, CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
			return err
		},
		"token": func(ctx context.Context, c csiClients) error {
			_, err := c.controller.ListVolumes(ctx, &csi.ListVolumesRequest{StartingToken: huge})
			return err
		},
		"path": func(ctx context.Context, c csiClients) error {
			_, err := c.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "x", StagingTargetPath: huge, VolumeCapability: mount("")[0]})
			return err
		},
		"mount option": func(ctx context.Context, c csiClients) error {
			_, err := c.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: "x", StagingTargetPath: "/x", VolumeCapability: mount("", "bind,"+huge)[0]})
			return err
		},
	} {
		for _, level := range []string{"info", "debug"} {
			t.Run(name+" at level "+level, func(t *testing.T) {
				var out bytes.Buffer
				clients, stop := serveFake(t, &out, level)
				err := call(t.Context(), clients)
				stop()
				message := status.Convert(err).Message()
				if accepted := name == "claim"; (err == nil) != accepted || len(message) > logs.TextMost || strings.ContainsFunc(message, unicode.IsControl) {
					t.Errorf("answered with %d bytes: %.300q", len(message), message)
				}
				if out.Len() == 0 || out.Len() > 4*logs.TextMost {
					t.Errorf("%d bytes are in the log: %.300s", out.Len(), out.String())
				}
				for line := range strings.Lines(out.String()) {
					var entry struct{ Msg string }
					if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg != "csi" {
						t.Errorf("not a line of the driver: %.300s", line)
					}
				}
			})
		}
	}
}

// csiClients call a driver.
type csiClients struct {
	controller csi.ControllerClient
	node       csi.NodeClient
}

// serveFake serves a node's volumes over a fake LVM, and logs to out. What is logged is complete when it was stopped.
func serveFake(t *testing.T, out *bytes.Buffer, level string) (clients csiClients, stop func()) {
	t.Helper()
	log, err := logs.New(out, level, "json")
	must(t, err)
	host := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{lvm.GiB}})
	mounts := node.New(node.Config{NodeName: "node-1", Devices: host, Log: log})
	server := newServer(log, newCallMetrics(prometheus.NewRegistry()), &identity{}, newController("node-1", host, nil, nil, mounts, nil, nil), mounts)
	path := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := listen(t.Context(), path)
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn := dial(t, path)
	return csiClients{csi.NewControllerClient(conn), csi.NewNodeClient(conn)}, func() {
		server.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
