package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestValidateVolumeCapabilities(t *testing.T) {
	s, _ := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	for _, test := range []struct {
		name   string
		change func(*csi.ValidateVolumeCapabilitiesRequest)
		says   string // empty: confirmed
	}{
		{"as created", func(r *csi.ValidateVolumeCapabilitiesRequest) { r.Parameters = wanted().GetParameters() }, ""},
		{"block", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{blockCapability(writer)}
		}, ""},
		{"RWX", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities[0].AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, "MULTI_NODE_MULTI_WRITER"},
		{"ntfs", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities[0] = mountCapability("ntfs", writer)
		}, "ntfs"},
		{"other parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.Parameters = map[string]string{"volumeGroup": "vg-nvme", "wipe": "none"}
		}, "wipe zero, not none"},
		{"unknown parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) { r.Parameters = map[string]string{"x": "y"} }, `"x"`},
		{"mutable parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) { r.MutableParameters = map[string]string{"x": "y"} }, "mutable"},
		{"made anew", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeContext = map[string]string{AttributeUUID: "another"}
		}, "made anew"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: volume.GetVolumeId(), VolumeContext: volume.GetVolumeContext(), VolumeCapabilities: wanted().GetVolumeCapabilities(),
			}
			test.change(req)
			reply, err := s.ValidateVolumeCapabilities(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if confirmed := reply.GetConfirmed() != nil; confirmed != (test.says == "") || !strings.Contains(reply.GetMessage(), test.says) {
				t.Errorf("got %v; want it to say %q", reply, test.says)
			}
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	s, _ := newTestServer(t)
	uses := wanted().GetVolumeCapabilities()
	gone := strings.Split(mustCreate(t, s, wanted()).GetVolumeId(), "/")[0] + "/never-made"
	for _, test := range []struct {
		name, handle string
		uses         []*csi.VolumeCapability
		kind         lvm.Kind
	}{
		{"no handle", "", uses, lvm.KindInvalid},
		{"no capabilities", gone, nil, lvm.KindInvalid},
		{"garbage", "garbage", uses, lvm.KindNotFound},
		{"never made", gone, uses, lvm.KindNotFound},
		{"another node's", elsewhere, uses, lvm.KindNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: test.handle, VolumeCapabilities: test.uses})
			expectKind(t, err, test.kind)
		})
	}
}
