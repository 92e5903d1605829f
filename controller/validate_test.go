package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

func TestValidateVolumeCapabilities(t *testing.T) {
	s, _ := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	request := wanted()
	request.Name = "pvc-small"
	size(8<<20, 0)(request)
	small := mustCreate(t, s, request)
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
		}, "ReadWriteMany"},
		{"ntfs", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities[0] = mountCapability("ntfs", writer)
		}, "ntfs"},
		{"other parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.Parameters = map[string]string{"volumeGroup": "vg-nvme", "wipe": "none"}
		}, "wipe zero, not none"},
		{"another group", parametersOf("volumeGroup", "vg-sata"), `group vg-nvme, not in "vg-sata"`},
		{"a group that is not there", parametersOf("volumeGroup", "vg-tape"), `not in "vg-tape"`},
		{"a tag of its group", parametersOf("volumeGroup", "@any"), ""},
		{"a tag that its group lacks", parametersOf("volumeGroup", "@fast"), `not in "@fast"`},
		{"another layout", parametersOf("volumeGroup", "vg-nvme", "layout", "striped"), "layout linear, not striped"},
		{"options of another file system", parametersOf("volumeGroup", "vg-nvme", "mkfsOptions", "-F"), `"-F"`},
		{"a volume too small for xfs", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeId = small.GetVolumeId()
			r.VolumeCapabilities = []*csi.VolumeCapability{mountCapability("xfs", writer)}
			r.VolumeContext = nil
		}, "300 MiB"},
		{"a mount option", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeCapabilities = []*csi.VolumeCapability{mountedWith("", "bind")}
		}, `"bind"`},
		{"unknown parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) { r.Parameters = map[string]string{"x": "y"} }, `"x"`},
		{"mutable parameters", func(r *csi.ValidateVolumeCapabilitiesRequest) { r.MutableParameters = map[string]string{"x": "y"} }, "mutable"},
		{"created again", func(r *csi.ValidateVolumeCapabilitiesRequest) {
			r.VolumeContext = map[string]string{api.AttributeUUID: "another"}
		}, "created again"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: volume.GetVolumeId(), VolumeContext: volume.GetVolumeContext(), VolumeCapabilities: wanted().GetVolumeCapabilities(),
			}
			test.change(req)
			reply, err := s.ValidateVolumeCapabilities(t.Context(), req)
			must(t, err)
			if confirmed := reply.GetConfirmed() != nil; confirmed != (test.says == "") || !strings.Contains(reply.GetMessage(), test.says) {
				t.Errorf("got %v; want it to say %q", reply, test.says)
			}
		})
	}
}

// parametersOf asks whether a volume has the parameters.
func parametersOf(pairs ...string) func(*csi.ValidateVolumeCapabilitiesRequest) {
	return func(r *csi.ValidateVolumeCapabilitiesRequest) {
		r.Parameters = map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			r.Parameters[pairs[i]] = pairs[i+1]
		}
	}
}

// The volume's class has the parameters of CreateVolume, and the layout's defaults for the others.
func TestValidateComparesWholeClasses(t *testing.T) {
	s, _ := newTestServer(t)
	req := wanted()
	set("wipe", "none")(req)
	volume := mustCreate(t, s, req)
	for want, parameters := range map[string]map[string]string{
		"":                                {"volumeGroup": "vg-nvme", "wipe": "none"},
		"wipe none, not zero":             {"volumeGroup": "vg-nvme"},
		"does not use stripes (given: 2)": {"volumeGroup": "vg-nvme", "wipe": "none", "stripes": "2"},
	} {
		reply, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: volume.GetVolumeId(), VolumeCapabilities: wanted().GetVolumeCapabilities(), Parameters: parameters,
		})
		must(t, err)
		if (reply.GetConfirmed() != nil) != (want == "") || !strings.Contains(reply.GetMessage(), want) {
			t.Errorf("%v: %v, want %q", parameters, reply, want)
		}
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

// TestVolumeOfAnotherNodeIsNotFound: a call that uses a volume answers NotFound for one of another node and for one that is not managed.
func TestVolumeOfAnotherNodeIsNotFound(t *testing.T) {
	s := &Server{node: "node-1"}
	for kind, want := range map[lvm.Kind]lvm.Kind{
		lvm.KindNotLocal: lvm.KindNotFound, lvm.KindNotManaged: lvm.KindNotFound, lvm.KindBusy: lvm.KindBusy, lvm.KindConflict: lvm.KindConflict,
	} {
		if got := lvm.KindOf(existing(s.node, lvm.Errorf(kind, "x"))); got != want {
			t.Errorf("kind %v: answered as %v, want %v", kind, got, want)
		}
	}
}
