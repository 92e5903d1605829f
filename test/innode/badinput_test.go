//go:build innode

package innode

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func with(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters[key] = value }
}

func sized(required, limit int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	}
}

func access(mode csi.VolumeCapability_AccessMode_Mode) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode.Mode = mode }
}

// Bad input gets a clear error and changes nothing: LVM's own commit counters prove the second half.
func TestBadInput(t *testing.T) {
	const tooMuch = 1 << 50
	before := seqnos(t)
	for _, test := range []struct {
		what   string
		change func(*csi.CreateVolumeRequest)
		code   codes.Code
		says   string
	}{
		{"unknown parameter", with("volumegroup", "vg-a"), codes.InvalidArgument, "volumegroup"},
		{"no volumeGroup", func(r *csi.CreateVolumeRequest) { delete(r.Parameters, "volumeGroup") }, codes.InvalidArgument, "volumeGroup"},
		{"empty volumeGroup", with("volumeGroup", ""), codes.InvalidArgument, "volumeGroup"},
		{"group that is not there", with("volumeGroup", "vg-none"), codes.ResourceExhausted, "vg-none"},
		{"tag that is not there", with("volumeGroup", "@slow"), codes.ResourceExhausted, "slow"},
		{"two groups behind a tag, none fits", sized(6<<30, 0), codes.ResourceExhausted, "vg-b"},
		{"group name with a slash", with("volumeGroup", "vg-a/x"), codes.InvalidArgument, "vg-a/x"},
		{"group name with ..", with("volumeGroup", "../vg-a"), codes.InvalidArgument, "../vg-a"},
		{"group name like an option", with("volumeGroup", "-y"), codes.InvalidArgument, "-y"},
		{"group name with a space", with("volumeGroup", "vg a"), codes.InvalidArgument, "vg a"},
		{"group name with a shell's words", with("volumeGroup", "$(reboot)"), codes.InvalidArgument, "$(reboot)"},
		{"unknown layout", with("layout", "raid7"), codes.InvalidArgument, "raid7"},
		{"unknown wipe", with("wipe", "maybe"), codes.InvalidArgument, "maybe"},
		{"negative size", sized(-1, 0), codes.InvalidArgument, "-1"},
		{"negative limit", sized(0, -1), codes.InvalidArgument, "-1"},
		{"more than there is", sized(tooMuch, 0), codes.ResourceExhausted, "vg-a"},
		{"the largest number", sized(1<<63-1, 0), codes.ResourceExhausted, ""},
		{"required over limit", sized(128*mebibyte, 64*mebibyte), codes.InvalidArgument, "limit"},
		{"limit that no whole extent meets", sized(5*mebibyte, 6*mebibyte), codes.OutOfRange, "extent"},
		{"ReadWriteMany", access(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), codes.InvalidArgument, "node"},
		{"ReadOnlyMany", access(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY), codes.InvalidArgument, "node"},
		{"unknown file system", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0] = mountCapability("ntfs") }, codes.InvalidArgument, "ntfs"},
		{"no capability", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, codes.InvalidArgument, "capabilit"},
		{"no name", func(r *csi.CreateVolumeRequest) { r.Name = "" }, codes.InvalidArgument, "name"},
		{"a name of 129 bytes", func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 129) }, codes.InvalidArgument, "128"},
		{"another node", func(r *csi.CreateVolumeRequest) {
			r.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.nodelvm.io/node": "node-9"}}}}
		}, codes.ResourceExhausted, nodeName},
	} {
		t.Run(test.what, func(t *testing.T) {
			_, err := connect(t).CreateVolume(t.Context(), createRequest("bad", 64*mebibyte, test.change))
			if status.Code(err) != test.code || !strings.Contains(status.Convert(err).Message(), test.says) {
				t.Errorf("answers %v, want %s with the word %q", err, test.code, test.says)
			}
			t.Logf("it says: %s", status.Convert(err).Message())
			if after := seqnos(t); after != before {
				t.Errorf("a group was changed: %q before, %q after", before, after)
			}
		})
	}
}

// Odd names are not bad input: a name is a key and may be anything that the spec allows.
func TestUnusualNamesAreAccepted(t *testing.T) {
	c := connect(t)
	before := len(volumes(t))
	names := []string{"-n", "../up", "a/b", "with space", "$(reboot)", "`x`;y|z", "ünïcödé 名前", strings.Repeat("x", 128), "@fast", "pvmove0", "snapshot1", "a_tmeta"}
	var requests []*csi.CreateVolumeRequest
	for _, name := range names {
		requests = append(requests, createRequest(name, 8*mebibyte, with("wipe", "none")))
	}
	for i, first := range c.createAll(t, requests...) {
		again, err := c.CreateVolume(t.Context(), requests[i])
		if err != nil || again.GetVolume().GetVolumeId() != first.GetVolumeId() {
			t.Errorf("name %q: again %v, %v; first %s", names[i], again, err, first.GetVolumeId())
		}
	}
	if made := len(volumes(t)) - before; made != len(names) {
		t.Errorf("%d names made %d volumes", len(names), made)
	}
}

func TestInvalidVolumeHandles(t *testing.T) {
	c := connect(t)
	before := seqnos(t)
	const elsewhere = "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG/pvc-1"
	for _, test := range []struct {
		handle string
		code   codes.Code
	}{
		{"garbage", codes.OK},
		{"../../etc/passwd", codes.OK},
		{"vg-a/lv", codes.OK},
		{strings.Repeat("x", 200), codes.OK},
		{elsewhere, codes.FailedPrecondition},
		{"", codes.InvalidArgument},
	} {
		_, err := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: test.handle})
		if status.Code(err) != test.code {
			t.Errorf("DeleteVolume(%q) answers %v, want %s", test.handle, err, test.code)
		}
		if err != nil {
			t.Logf("it says: %s", status.Convert(err).Message())
		}
	}
	if after := seqnos(t); after != before {
		t.Errorf("a group was changed: %q before, %q after", before, after)
	}
}
