package controller

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// limitedServer is a server that changes the limits of volumes.
func limitedServer(t *testing.T) (*Server, *lvmtest.Node) {
	t.Helper()
	s, node := newTestServer(t)
	s.limits = s.volumes.(Limits)
	return s, node
}

func claimsModify(t *testing.T, s *Server) bool {
	t.Helper()
	reply, err := s.ControllerGetCapabilities(t.Context(), nil)
	must(t, err)
	return slices.ContainsFunc(reply.GetCapabilities(), func(c *csi.ControllerServiceCapability) bool {
		return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_MODIFY_VOLUME
	})
}

func limitsOf(t *testing.T, s *Server, handle string) lvm.Limits {
	t.Helper()
	id, err := lvm.ParseID(handle)
	must(t, err)
	v, err := s.volumes.Lookup(t.Context(), id)
	must(t, err)
	return v.Limits
}

func TestModify(t *testing.T) {
	s, node := limitedServer(t)
	if !claimsModify(t, s) {
		t.Error("the capability is not claimed")
	}
	handle := mustCreate(t, s, wanted()).GetVolumeId()
	modify := func(parameters map[string]string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: handle, MutableParameters: parameters})
			return err
		}
	}
	for _, test := range []struct {
		name       string
		parameters map[string]string
		want       lvm.Limits
		commands   int // at most
	}{
		{"a limit", map[string]string{"readIOPS": "100"}, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}}, 2},
		{"again", map[string]string{"readIOPS": "100"}, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}}, 0},
		{"another one", map[string]string{"writeBandwidthPerGiB": "1Mi"}, lvm.Limits{PerGiB: lvm.Rates{WriteBandwidth: lvm.MiB}}, 1},
		{"none", map[string]string{"readIOPS": "max"}, lvm.Limits{}, 1},
	} {
		before := len(node.Commands())
		if err := modify(test.parameters)(t.Context()); err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if got := limitsOf(t, s, handle); got != test.want {
			t.Errorf("%s: the limits are %s, want %s", test.name, got, test.want)
		}
		if n := len(node.Commands()) - before; n > test.commands {
			t.Errorf("%s took %d LVM commands, want at most %d", test.name, n, test.commands)
		}
	}
	refused := func(volume string, parameters map[string]string, kind lvm.Kind, says string) {
		t.Helper()
		_, err := s.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: volume, MutableParameters: parameters})
		expectKind(t, err, kind, says)
	}
	good := map[string]string{"readIOPS": "100"}
	refused("", good, lvm.KindInvalid, "volume_id")
	refused(handle, nil, lvm.KindInvalid, "mutable_parameters")
	refused(handle, map[string]string{"iops": "1"}, lvm.KindInvalid, `unknown parameter "iops"`)
	refused("garbage", good, lvm.KindNotFound, "garbage")
	refused(handle+"x", good, lvm.KindNotFound, "vg-nvme")
	refused(elsewhere, good, lvm.KindNotFound, "node-1")
}

// TestModifyIsOptional: without limits the driver claims no such capability, and has no mutable parameters.
func TestModifyIsOptional(t *testing.T) {
	s, _ := newTestServer(t)
	if claimsModify(t, s) {
		t.Error("the capability is claimed")
	}
	handle := mustCreate(t, s, wanted()).GetVolumeId()
	if _, err := s.ControllerModifyVolume(t.Context(), &csi.ControllerModifyVolumeRequest{VolumeId: handle, MutableParameters: map[string]string{"readIOPS": "100"}}); err == nil {
		t.Error("the volume was modified")
	}
	if limitsOf(t, s, handle) != (lvm.Limits{}) {
		t.Error("the volume has limits")
	}
}

// TestCreateWithLimits: the limits are in the commit that creates the volume, and a repeated request changes them to its own.
func TestCreateWithLimits(t *testing.T) {
	s, node := limitedServer(t)
	req := wanted()
	plain := wanted()
	plain.Name = "pvc-2"
	before := len(node.Commands())
	mustCreate(t, s, plain)
	commands := len(node.Commands()) - before
	req.MutableParameters = map[string]string{"readIOPS": "100"}
	before = len(node.Commands())
	first := mustCreate(t, s, req)
	if n := len(node.Commands()) - before; n > commands {
		t.Errorf("%d LVM commands, and %d without limits", n, commands)
	}
	for parameter, want := range map[string]int64{"100": 100, "200": 200} {
		req.MutableParameters = map[string]string{"readIOPS": parameter}
		again := mustCreate(t, s, req)
		if got := limitsOf(t, s, again.GetVolumeId()); got.Fixed.ReadIOPS != want || again.GetVolumeId() != first.GetVolumeId() {
			t.Errorf("%s: the limits are %s", parameter, got)
		}
		reply, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: again.GetVolumeId(),
			VolumeCapabilities: req.GetVolumeCapabilities(), MutableParameters: req.GetMutableParameters()})
		if err != nil || reply.GetConfirmed().GetMutableParameters()["readIOPS"] != parameter {
			t.Errorf("%s: confirmed %v, %v", parameter, reply, err)
		}
	}
	req.MutableParameters = nil
	mustCreate(t, s, req)
	if limitsOf(t, s, first.GetVolumeId()) == (lvm.Limits{}) {
		t.Error("a request without mutable parameters has removed the limits")
	}
	reply, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: first.GetVolumeId(),
		VolumeCapabilities: req.GetVolumeCapabilities(), MutableParameters: map[string]string{"readIOPS": "7k"}})
	if err != nil || reply.GetConfirmed() != nil {
		t.Errorf("other limits: confirmed %v, %v", reply, err)
	}
	req.Name, req.MutableParameters = "pvc-3", map[string]string{"iops": "1"}
	_, err = s.CreateVolume(t.Context(), req)
	expectKind(t, err, lvm.KindInvalid, `unknown parameter "iops"`)
}
