package controller

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// elsewhere is a well-formed handle of a group that no test has.
const elsewhere = "AAAAAA-bbbb-cccc-dddd-eeee-ffff-GGGGGG/pvc-1"

// newTestServer serves node-1 over a fake node with two groups: vg-nvme (40 GiB) and vg-sata (100 GiB on two disks),
// both tagged any.
func newTestServer(t *testing.T) (*Server, *lvmtest.Node) {
	t.Helper()
	node := lvmtest.NewNode(
		lvmtest.Group{Name: "vg-nvme", Tags: []string{"any"}, Disks: []lvm.Bytes{40 * lvm.GiB}},
		lvmtest.Group{Name: "vg-sata", Tags: []string{"any"}, Disks: []lvm.Bytes{60 * lvm.GiB, 40 * lvm.GiB}},
	)
	return New(node.Start(t, lvm.Config{Cluster: "cluster-1"}), "node-1"), node
}

func mustCreate(t *testing.T, s *Server, req *csi.CreateVolumeRequest) *csi.Volume {
	t.Helper()
	reply, err := s.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatalf("create %s: %v", req.GetName(), err)
	}
	return reply.GetVolume()
}

// expectKind fails unless the error is of the kind and says all of the words.
func expectKind(t *testing.T, err error, kind lvm.Kind, says ...string) {
	t.Helper()
	if err == nil || lvm.KindOf(err) != kind {
		t.Errorf("got kind %d, want %d: %v", lvm.KindOf(err), kind, err)
		return
	}
	for _, words := range says {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the message does not say %q: %v", words, err)
		}
	}
}

func TestCreateSaysWhatWasMade(t *testing.T) {
	s, _ := newTestServer(t)
	req := wanted()
	req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{topologyOf("node-1")}}
	volume := mustCreate(t, s, req)

	id, err := lvm.ParseID(volume.GetVolumeId())
	if err != nil {
		t.Fatal(err)
	}
	made, err := s.volumes.Lookup(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want := &csi.Volume{
		VolumeId:           id.String(),
		CapacityBytes:      5 << 30,
		VolumeContext:      map[string]string{"nodelvm.io/lv-uuid": made.UUID, "nodelvm.io/group": "vg-nvme"},
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

func TestCreateAtOnce(t *testing.T) {
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
		{"no such group", group("vg-tape", 1<<30), lvm.KindNoRoom, []string{"node-1", "vg-tape"}},
		{"no such tag", group("@tape", 1<<30), lvm.KindNoRoom, []string{"node-1", `"tape"`}},
		{"too large", group("vg-nvme", 41<<30), lvm.KindNoRoom, []string{"node-1", "vg-nvme"}},
		{"too large for either group", group("@any", 101<<30), lvm.KindNoRoom, []string{"node-1", "vg-nvme", "vg-sata"}},
		{"wanted elsewhere", there, lvm.KindNoRoom, []string{"node-1", "node-2", "WaitForFirstConsumer"}},
		{"a group that is an option", group("-rf", 1<<30), lvm.KindInvalid, []string{"-rf"}},
		{"a group that is a path", group("vg/../lv", 1<<30), lvm.KindInvalid, []string{"vg/../lv"}},
		{"a group for a shell", group("vg;reboot", 1<<30), lvm.KindInvalid, []string{"vg;reboot"}},
		{"only an @", group("@", 1<<30), lvm.KindInvalid, []string{"@"}},
		{"the largest number", group("vg-nvme", 1<<63-1), lvm.KindNoRoom, []string{"node-1", "vg-nvme", "40 GiB"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, node := newTestServer(t)
			_, err := s.CreateVolume(t.Context(), test.req)
			expectKind(t, err, test.kind, test.says...)
			if commands := node.Commands(); len(commands) != 0 {
				t.Errorf("LVM was run: %v", commands)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	s, _ := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	remove := func(handle string) error {
		_, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: handle})
		return err
	}
	expectKind(t, remove(""), lvm.KindInvalid)
	expectKind(t, remove(elsewhere), lvm.KindNotOurs, "node-1")
	for _, handle := range []string{"garbage", "vg-nvme/pvc-1", "../../etc", "-rf", strings.Repeat("x", 300), volume.GetVolumeId() + "/x"} {
		if err := remove(handle); err != nil {
			t.Errorf("delete %q: %v; want OK, for it cannot exist", handle, err)
		}
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 1 {
		t.Fatalf("the volume did not survive: %v, %v", list, err)
	}
	for range 2 {
		if err := remove(volume.GetVolumeId()); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if list, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); err != nil || len(list.GetEntries()) != 0 {
		t.Errorf("the volume is still listed: %v, %v", list, err)
	}
}

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
			if err != nil {
				t.Fatal(err)
			}
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
func TestCapacityIsKept(t *testing.T) {
	s, _ := newTestServer(t)
	mustCreate(t, s, wanted())
	reply, err := s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: map[string]string{"volumeGroup": "vg-nvme"}})
	if err != nil {
		t.Fatal(err)
	}
	req := wanted()
	req.Name = "the rest"
	req.CapacityRange.RequiredBytes = reply.GetMaximumVolumeSize().GetValue() + 1
	_, err = s.CreateVolume(t.Context(), req)
	expectKind(t, err, lvm.KindNoRoom)
	req.CapacityRange.RequiredBytes--
	mustCreate(t, s, req)
}

func TestListVolumesByPages(t *testing.T) {
	s, _ := newTestServer(t)
	for i := range 5 {
		req := wanted()
		req.Name, req.CapacityRange.RequiredBytes = fmt.Sprintf("v%d", i), 1<<30
		mustCreate(t, s, req)
	}
	seen := map[string]bool{}
	for token, page := "", 0; ; page++ {
		reply, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: 2, StartingToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range reply.GetEntries() {
			seen[entry.GetVolume().GetVolumeId()] = true
		}
		if page == 0 { // the last volume of a page goes; the token still leads on
			last := reply.GetEntries()[1].GetVolume().GetVolumeId()
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: last}); err != nil {
				t.Fatal(err)
			}
		}
		if token = reply.GetNextToken(); token == "" {
			if page != 2 {
				t.Errorf("the last page has number %d, want 2", page)
			}
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d volumes were listed, want 5", len(seen))
	}
	_, err := s.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: "page-2"})
	if status.Code(err) != codes.Aborted {
		t.Errorf("a bad token got %v, want Aborted", err)
	}
	_, err = s.ListVolumes(t.Context(), &csi.ListVolumesRequest{MaxEntries: -1})
	expectKind(t, err, lvm.KindInvalid)
}

func TestValidateVolumeCapabilities(t *testing.T) {
	s, _ := newTestServer(t)
	volume := mustCreate(t, s, wanted())
	const writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
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
		}, "wipe none"},
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
		{"another node's", elsewhere, uses, lvm.KindNotOurs},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{VolumeId: test.handle, VolumeCapabilities: test.uses})
			expectKind(t, err, test.kind)
		})
	}
}
