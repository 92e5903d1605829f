package controller

import (
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/lvm"
)

func TestCreateVolumeReply(t *testing.T) {
	s, _ := newTestServer(t)
	req := wanted()
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{topologyOf("node-1")}}
	volume := mustCreate(t, s, req)

	id, err := lvm.ParseID(volume.GetVolumeId())
	must(t, err)
	made, err := s.volumes.Lookup(t.Context(), id)
	must(t, err)
	want := &csi.Volume{
		VolumeId:           id.String(),
		CapacityBytes:      5 << 30,
		VolumeContext:      map[string]string{"nodelvm.io/lv-uuid": made.UUID, "nodelvm.io/volume-group": "vg-nvme"},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{"topology.nodelvm.io/node": "node-1"}}},
	}
	if made.UUID == "" || !proto.Equal(volume, want) {
		t.Errorf("got  %v\nwant %v", volume, want)
	}
	if made.Claim != "shop/data-pg-0" || made.Name != "pvc-1" {
		t.Errorf("the volume does not say whose it is: %+v", made)
	}
}

func TestCreateTwice(t *testing.T) {
	s, node := newTestServer(t)
	first := mustCreate(t, s, wanted())
	commands := len(node.Commands())
	if second := mustCreate(t, s, wanted()); !proto.Equal(first, second) {
		t.Errorf("the retry answers differently:\n%v\n%v", first, second)
	}
	if n := len(node.Commands()) - commands; n != 0 {
		t.Errorf("the retry ran %d LVM commands", n)
	}

	larger := wanted()
	larger.CapacityRange.RequiredBytes = 6 << 30
	_, err := s.CreateVolume(t.Context(), larger)
	expectKind(t, err, lvm.KindExists)
	otherWipe := wanted()
	otherWipe.Parameters["wipe"] = "none"
	_, err = s.CreateVolume(t.Context(), otherWipe)
	expectKind(t, err, lvm.KindExists)
}

func TestConcurrentIdenticalCreates(t *testing.T) {
	s, _ := newTestServer(t)
	var calls sync.WaitGroup
	replies := make([]*csi.CreateVolumeResponse, 8)
	for i := range replies {
		calls.Go(func() {
			var err error
			if replies[i], err = s.CreateVolume(t.Context(), wanted()); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	calls.Wait()
	for _, reply := range replies {
		if !proto.Equal(reply, replies[0]) {
			t.Errorf("different replies:\n%v\n%v", reply, replies[0])
		}
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 1 {
		t.Errorf("the calls made %d volumes, want one (%v)", len(list.GetEntries()), err)
	}
}

// What cannot be made is refused with words for the person who reads the event, and LVM is asked to change nothing.
func TestCreateRefuses(t *testing.T) {
	group := func(name string, required int64) *csi.CreateVolumeRequest {
		req := wanted()
		req.Parameters["volumeGroup"] = name
		req.CapacityRange.RequiredBytes = required
		return req
	}
	there := group("vg-nvme", 1<<30)
	there.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{topologyOf("node-2")}}
	for _, test := range []struct {
		name string
		req  *csi.CreateVolumeRequest
		kind lvm.Kind
		says []string
	}{
		{"no such group", group("vg-tape", 1<<30), lvm.KindInsufficientCapacity, []string{"node-1", "vg-tape"}},
		{"no such tag", group("@tape", 1<<30), lvm.KindInsufficientCapacity, []string{"node-1", `"tape"`}},
		{"too large", group("vg-nvme", 41<<30), lvm.KindInsufficientCapacity, []string{"node-1", "vg-nvme"}},
		{"too large for either group", group("@any", 101<<30), lvm.KindInsufficientCapacity, []string{"node-1", "vg-nvme", "vg-sata"}},
		{"wanted elsewhere", there, lvm.KindInsufficientCapacity, []string{"node-1", "node-2", "WaitForFirstConsumer"}},
		{"a group that is an option", group("-rf", 1<<30), lvm.KindInvalid, []string{"-rf"}},
		{"a group that is a path", group("vg/../lv", 1<<30), lvm.KindInvalid, []string{"vg/../lv"}},
		{"a group for a shell", group("vg;reboot", 1<<30), lvm.KindInvalid, []string{"vg;reboot"}},
		{"only an @", group("@", 1<<30), lvm.KindInvalid, []string{"@"}},
		{"the largest number", group("vg-nvme", 1<<63-1), lvm.KindInsufficientCapacity, []string{"node-1", "vg-nvme", "40 GiB"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, node := newTestServer(t)
			before := len(node.Commands())
			_, err := s.CreateVolume(t.Context(), test.req)
			expectKind(t, err, test.kind, test.says...)
			if commands := node.Commands()[before:]; len(commands) != 0 {
				t.Errorf("LVM was run: %v", commands)
			}
		})
	}
}
