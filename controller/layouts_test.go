package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// newWideServer serves node-1 over a group of six disks of 10 GiB, vg.
func newWideServer(t *testing.T) (*Server, *lvmtest.Node) {
	t.Helper()
	disks := make([]lvm.Bytes, 6)
	for i := range disks {
		disks[i] = 10 * lvm.GiB
	}
	node := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: disks})
	host := node.Start(t, testConfig)
	return New(Config{NodeName: "node-1", Volumes: host, Snapshots: host, CheckFileSystem: checkFileSystem}), node
}

// in asks for a volume of 1 GiB in the group vg; pairs are parameters.
func in(name string, pairs ...string) *csi.CreateVolumeRequest {
	req := wanted()
	req.Name, req.CapacityRange.RequiredBytes = name, 1<<30
	set("volumeGroup", "vg")(req)
	for i := 0; i < len(pairs); i += 2 {
		set(pairs[i], pairs[i+1])(req)
	}
	return req
}

// Each layout is made, found again, confirmed, expanded, promised and deleted.
func TestLayouts(t *testing.T) {
	for _, test := range []struct {
		pairs []string
		size  int64 // of a volume for which 1 GiB was asked
	}{
		{[]string{"layout", "linear"}, 1 << 30},
		{[]string{"layout", "striped", "stripes", "3", "stripeSize", "128Ki"}, 1<<30 + 8<<20},
		{[]string{"layout", "raid1", "mirrors", "2"}, 1 << 30},
		{[]string{"layout", "raid5"}, 1 << 30},
		{[]string{"layout", "raid6", "stripes", "4"}, 1 << 30},
		{[]string{"layout", "raid10", "stripes", "2"}, 1 << 30},
		{[]string{"layout", "thin", "thinPool", "fast", "overprovisionRatio", "2.5"}, 1 << 30},
		{[]string{"layout", "linear", "encryption", "luks2"}, 1 << 30},
		{[]string{"layout", "striped", "stripes", "3", "encryption", "luks2"}, 1<<30 + 4<<20},
		{[]string{"layout", "raid1", "encryption", "luks2"}, 1 << 30},
		{[]string{"layout", "thin", "encryption", "luks2"}, 1 << 30},
	} {
		t.Run(test.pairs[1], func(t *testing.T) {
			s, _ := newWideServer(t)
			req := in("v", test.pairs...)
			largest := largestOf(t, s, req)
			v := mustCreate(t, s, req)
			if v.GetCapacityBytes() != test.size {
				t.Errorf("the volume has %d bytes, want %d", v.GetCapacityBytes(), test.size)
			}
			if encryption := v.GetVolumeContext()[api.AttributeEncryption]; encryption != req.GetParameters()["encryption"] {
				t.Errorf("its attribute says that its encryption is %q", encryption)
			}
			if again := mustCreate(t, s, req); !proto.Equal(v, again) {
				t.Errorf("the retry answers %v, the first %v", again, v)
			}
			if now := largestOf(t, s, req); now <= 0 || now > largest {
				t.Errorf("the largest volume was %d and is %d", largest, now)
			}
			reply, err := s.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
				VolumeId: v.GetVolumeId(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
			})
			if err != nil || reply.GetConfirmed() == nil {
				t.Errorf("not confirmed: %v, %v", reply, err)
			}
			larger, err := s.ControllerExpandVolume(t.Context(), expandRequest(v.GetVolumeId(), 2<<30, 0))
			if err != nil || larger.GetCapacityBytes() < 2<<30 {
				t.Errorf("expanded: %v, %v", larger, err)
			}
			if _, err := s.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
				t.Error(err)
			}
		})
	}
}

func largestOf(t *testing.T, s *Server, req *csi.CreateVolumeRequest) int64 {
	t.Helper()
	reply, err := s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: req.GetParameters()})
	must(t, err)
	return reply.GetMaximumVolumeSize().GetValue()
}

// A parameter that the layout does not have is no typo that may be silent, in CreateVolume nor in GetCapacity.
func TestParametersOfAnotherLayout(t *testing.T) {
	s, node := newWideServer(t)
	before := len(node.Commands())
	for _, test := range []struct {
		pairs []string
		says  string
	}{
		{[]string{"stripes", "2"}, "stripes"},
		{[]string{"stripeSize", "64Ki"}, "stripeSize"},
		{[]string{"mirrors", "1"}, "mirrors"},
		{[]string{"thinPool", "fast"}, "thinPool"},
		{[]string{"overprovisionRatio", "2"}, "overprovisionRatio"},
		{[]string{"layout", "raid1", "stripes", "2"}, "stripes"},
		{[]string{"layout", "striped", "mirrors", "1"}, "mirrors"},
		{[]string{"layout", "striped", "stripes", "1"}, "stripes"},
		{[]string{"layout", "striped", "stripes", "1000"}, "stripes"},
		{[]string{"layout", "striped", "stripeSize", "65Ki"}, "power of two"},
		{[]string{"layout", "raid6", "stripes", "2"}, "stripes"},
		{[]string{"layout", "raid10", "mirrors", "2"}, "mirrors"},
		{[]string{"layout", "thin", "wipe", "zero"}, "wipe"},
		{[]string{"layout", "thin", "thinPool", "-rf"}, "-rf"},
		{[]string{"layout", "thin", "thinPool", "a/b"}, "a/b"},
		{[]string{"encryption", "luks1"}, "it can be luks2"},
		{[]string{"encryption", ""}, "it can be luks2"},
	} {
		req := in("v", test.pairs...)
		_, err := s.CreateVolume(t.Context(), req)
		expectKind(t, err, lvm.KindInvalid, test.says)
		_, err = s.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: req.GetParameters()})
		expectKind(t, err, lvm.KindInvalid, test.says)
	}
	tooWide := in("v", "layout", "striped", "stripes", "7") // another node may have as many disks
	_, err := s.CreateVolume(t.Context(), tooWide)
	expectKind(t, err, lvm.KindInsufficientCapacity, "node-1")
	if n := largestOf(t, s, tooWide); n != 0 {
		t.Errorf("%d bytes over seven of six disks", n)
	}
	if commands := node.Commands()[before:]; len(commands) != 0 {
		t.Errorf("LVM was run: %v", commands)
	}
}
