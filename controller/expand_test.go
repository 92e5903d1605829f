package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/lvm"
)

const writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER

func expandRequest(handle string, required, limit int64) *csi.ControllerExpandVolumeRequest {
	return &csi.ControllerExpandVolumeRequest{
		VolumeId: handle, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}, VolumeCapability: mountCapability("", writer),
	}
}

func TestExpand(t *testing.T) {
	s, node := newTestServer(t)
	handle := mustCreate(t, s, wanted()).GetVolumeId()
	for _, test := range []struct {
		name            string
		required, limit int64
		size            int64
		commands        int // at most
	}{
		{"larger", 6 << 30, 0, 6 << 30, 3},
		{"again", 6 << 30, 6 << 30, 6 << 30, 0},
		{"rounded up to an extent", 6<<30 + 1, 7 << 30, 6<<30 + 4<<20, 3},
		{"smaller: it never shrinks", 1 << 30, 0, 6<<30 + 4<<20, 0},
	} {
		before := len(node.Commands())
		reply, err := s.ControllerExpandVolume(t.Context(), expandRequest(handle, test.required, test.limit))
		if err != nil || reply.GetCapacityBytes() != test.size || !reply.GetNodeExpansionRequired() {
			t.Errorf("%s: %v, %v", test.name, reply, err)
		}
		if n := len(node.Commands()) - before; n > test.commands {
			t.Errorf("%s took %d LVM commands, want at most %d", test.name, n, test.commands)
		}
	}
	block := expandRequest(handle, 7<<30, 0)
	block.VolumeCapability = blockCapability(writer)
	if reply, err := s.ControllerExpandVolume(t.Context(), block); err != nil || reply.GetNodeExpansionRequired() {
		t.Errorf("a raw device: %v, %v", reply, err)
	}
	silent := expandRequest(handle, 8<<30, 0)
	silent.VolumeCapability = nil
	if reply, err := s.ControllerExpandVolume(t.Context(), silent); err != nil || !reply.GetNodeExpansionRequired() {
		t.Errorf("a volume of whatever use: %v, %v", reply, err)
	}
}

// An expansion cannot leave the size out, and is not told to.
func TestExpandWithoutSize(t *testing.T) {
	s, _ := newTestServer(t)
	_, err := s.ControllerExpandVolume(t.Context(), expandRequest(mustCreate(t, s, wanted()).GetVolumeId(), 0, 0))
	expectKind(t, err, lvm.KindInvalid, "ask for a positive size")
	if err != nil && strings.Contains(err.Error(), "capacity_range") {
		t.Error(err)
	}
}

func TestExpandRefuses(t *testing.T) {
	s, node := newTestServer(t)
	handle := mustCreate(t, s, wanted()).GetVolumeId()
	rwx := expandRequest(handle, 6<<30, 0)
	rwx.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	before := len(node.Commands())
	for _, test := range []struct {
		name string
		req  *csi.ControllerExpandVolumeRequest
		kind lvm.Kind
		says string
	}{
		{"no volume", expandRequest("", 6<<30, 0), lvm.KindInvalid, "volume_id"},
		{"no size", &csi.ControllerExpandVolumeRequest{VolumeId: handle}, lvm.KindInvalid, "capacity_range"},
		{"a negative size", expandRequest(handle, -1, 0), lvm.KindInvalid, "-1"},
		{"required over limit", expandRequest(handle, 7<<30, 6<<30), lvm.KindInvalid, "limit"},
		{"below what it has", expandRequest(handle, 1<<30, 2<<30), lvm.KindOutOfRange, "5 GiB"},
		{"more than there is", expandRequest(handle, 41<<30, 0), lvm.KindOutOfRange, "vg-nvme"},
		{"the largest number", expandRequest(handle, 1<<63-1, 0), lvm.KindOutOfRange, "vg-nvme"},
		{"a limit within an extent", expandRequest(handle, 6<<30+1, 6<<30+2), lvm.KindOutOfRange, "extent"},
		{"a use by many nodes", rwx, lvm.KindInvalid, "ReadWriteOnce"},
		{"garbage", expandRequest("garbage", 6<<30, 0), lvm.KindNotFound, "garbage"},
		{"never made", expandRequest(handle+"x", 6<<30, 0), lvm.KindNotFound, "vg-nvme"},
		{"another node's", expandRequest(elsewhere, 6<<30, 0), lvm.KindNotFound, "node-1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.ControllerExpandVolume(t.Context(), test.req)
			expectKind(t, err, test.kind, test.says)
		})
	}
	if n := len(node.Commands()) - before; n > 0 {
		t.Errorf("refusals ran %d LVM commands: %v", n, node.Commands()[before:])
	}
}

// TestExpandEncryptedBlock: the mapping of a raw block volume grows on the node.
func TestExpandEncryptedBlock(t *testing.T) {
	s, _ := newTestServer(t)
	req := wanted()
	set("encryption", "luks2")(req)
	larger := expandRequest(mustCreate(t, s, req).GetVolumeId(), 7<<30, 0)
	larger.VolumeCapability = blockCapability(writer)
	if reply, err := s.ControllerExpandVolume(t.Context(), larger); err != nil || reply.GetCapacityBytes() != 7<<30 || !reply.GetNodeExpansionRequired() {
		t.Errorf("%v, %v", reply, err)
	}
}
