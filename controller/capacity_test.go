package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestGetCapacity(t *testing.T) {
	s, _ := newTestServer(t)
	class := func(pairs ...string) map[string]string {
		parameters := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			parameters[pairs[i]] = pairs[i+1]
		}
		return parameters
	}
	rwx := []*csi.VolumeCapability{mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
	rwo := []*csi.VolumeCapability{mountCapability("xfs", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)}
	for _, test := range []struct {
		name               string
		req                *csi.GetCapacityRequest
		available, largest lvm.Bytes
	}{
		{"a group", &csi.GetCapacityRequest{Parameters: class("volumeGroup", "vg-nvme")}, 40 * lvm.GiB, 40 * lvm.GiB},
		{"a tag", &csi.GetCapacityRequest{Parameters: class("volumeGroup", "@any")}, 140 * lvm.GiB, 100 * lvm.GiB},
		{"as the provisioner asks", &csi.GetCapacityRequest{
			Parameters:         class("volumeGroup", "vg-nvme", "csi.storage.k8s.io/fstype", "xfs"),
			AccessibleTopology: topologyOf("node-1"), VolumeCapabilities: rwo,
		}, 40 * lvm.GiB, 40 * lvm.GiB},
		{"another node", &csi.GetCapacityRequest{Parameters: class("volumeGroup", "vg-nvme"), AccessibleTopology: topologyOf("node-2")}, 0, 0},
		{"no such group", &csi.GetCapacityRequest{Parameters: class("volumeGroup", "vg-tape")}, 0, 0},
		{"a use that no volume has", &csi.GetCapacityRequest{Parameters: class("volumeGroup", "vg-nvme"), VolumeCapabilities: rwx}, 0, 0},
		{"no parameters", &csi.GetCapacityRequest{}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			reply, err := s.GetCapacity(t.Context(), test.req)
			must(t, err)
			if reply.GetMaximumVolumeSize() == nil {
				t.Fatal("no maximum volume size")
			}
			if got, largest := lvm.Bytes(reply.GetAvailableCapacity()), lvm.Bytes(reply.GetMaximumVolumeSize().GetValue()); got != test.available || largest != test.largest {
				t.Errorf("got %s, largest %s; want %s, largest %s", got, largest, test.available, test.largest)
			}
		})
	}
	for _, bad := range []map[string]string{
		class("volumegroup", "vg-nvme"), class("volumeGroup", ""), class("volumeGroup", "-x"), class("volumeGroup", "vg-nvme", "wipe", "maybe"),
	} {
		_, err := s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: bad})
		expectKind(t, err, lvm.KindInvalid)
	}
}

// The largest volume that is promised is exactly the largest that is made.
func TestCreateVolumeOfMaximumSize(t *testing.T) {
	s, _ := newTestServer(t)
	mustCreate(t, s, wanted())
	reply, err := s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": "vg-nvme"}})
	must(t, err)
	req := wanted()
	req.Name = "the rest"
	req.CapacityRange.RequiredBytes = reply.GetMaximumVolumeSize().GetValue() + 1
	_, err = s.CreateVolume(t.Context(), req)
	expectKind(t, err, lvm.KindInsufficientCapacity)
	req.CapacityRange.RequiredBytes--
	mustCreate(t, s, req)
}
