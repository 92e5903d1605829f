// Command diskdriver is a second CSI driver for the tests, beside nodelvm. It hands out whole disks of one node as raw block volumes, as the drivers of clouds
// do, and copies a disk for a snapshot or a clone. Its record is a folder with a symbolic link from the name of each volume and snapshot to its disk.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// topologyKey is the label of the node, whose disks no other node has.
const topologyKey = "topology.disks.example/node"

// driver serves all services of CSI, and the registration with the kubelet.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	name, node, socket string
	disks              disks
}

func main() {
	var d driver
	flag.StringVar(&d.name, "name", "disks.example", "name of the driver")
	flag.StringVar(&d.node, "node", os.Getenv("NODE_NAME"), "name of the node")
	flag.StringVar(&d.disks.record, "record", "", "folder of the record")
	kubelet := flag.String("kubelet-dir", "/var/lib/kubelet", "root folder of the kubelet")
	all := flag.String("disks", "", "the disks that it may hand out, such as /dev/sdb,/dev/sdc")
	flag.Parse()
	d.disks.all = strings.Split(*all, ",")
	d.socket = filepath.Join(*kubelet, "plugins", d.name, "csi.sock")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := d.serve(ctx, filepath.Join(*kubelet, "plugins_registry", d.name+"-reg.sock")); err != nil {
		log.Fatal(err)
	}
}

// serve serves on both sockets until ctx ends.
func (d *driver) serve(ctx context.Context, registry string) error {
	server := grpc.NewServer(grpc.UnaryInterceptor(logged))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	failed := make(chan error)
	for _, path := range []string{d.socket, registry} { // the kubelet calls the first as soon as it sees the second
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
		if err != nil {
			return err
		}
		go func() { failed <- server.Serve(listener) }()
	}
	context.AfterFunc(ctx, server.Stop)
	return <-failed
}

func logged(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	reply, err := handler(ctx, request)
	if err != nil || !strings.HasPrefix(info.FullMethod, "/csi.v1.Identity/") {
		log.Printf("%s %v: %v, %v", info.FullMethod, request, reply, err)
	}
	return reply, err
}

func (d *driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "test"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	reply := &csi.GetPluginCapabilitiesResponse{}
	for _, service := range []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS} {
		reply.Capabilities = append(reply.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}}})
	}
	return reply, nil
}
