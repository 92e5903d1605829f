package main

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/nodelvm/nodelvm/api"
)

// identity is the CSI Identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	ready  func(context.Context) error
	groups bool // the GroupController service is served
}

// GetPluginInfo returns the driver's name and version (CSI spec, "GetPluginInfo").
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: api.DriverName, VendorVersion: version}, nil
}

// GetPluginCapabilities reports a Controller service, volumes and snapshots that only one node can reach, and online expansion.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	reply := &csi.GetPluginCapabilitiesResponse{}
	services := []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
		csi.PluginCapability_Service_SNAPSHOT_ACCESSIBILITY_CONSTRAINTS,
	}
	if i.groups {
		services = append(services, csi.PluginCapability_Service_GROUP_CONTROLLER_SERVICE)
	}
	for _, service := range services {
		reply.Capabilities = append(reply.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: service}},
		})
	}
	reply.Capabilities = append(reply.Capabilities, &csi.PluginCapability{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}},
	})
	return reply, nil
}

// Probe reports whether LVM works. "Not ready" is an answer, not an error: the sidecars wait for readiness (CSI spec, "Probe").
func (i *identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(i.ready(ctx) == nil)}, nil
}
