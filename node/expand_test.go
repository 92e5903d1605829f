package node

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/mount"
)

// expandRequestOf is a NodeExpandVolumeRequest as the kubelet sends it for a file system.
func expandRequestOf(change ...func(*csi.NodeExpandVolumeRequest)) *csi.NodeExpandVolumeRequest {
	r := &csi.NodeExpandVolumeRequest{
		VolumeId: testID.String(), VolumePath: "/target", StagingTargetPath: "/staging",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, VolumeCapability: request().GetVolumeCapability(),
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestExpand(t *testing.T) {
	block := func(r *csi.NodeExpandVolumeRequest) {
		p := request(rawBlock)
		r.VolumeCapability = p.GetVolumeCapability()
	}
	for _, test := range []struct {
		what   string
		change func(*csi.NodeExpandVolumeRequest)
		lags   bool
		want   []string
	}{
		{"a file system", func(*csi.NodeExpandVolumeRequest) {}, true, []string{"resize /dev/dm-3 /staging"}},
		{"one that has grown", func(*csi.NodeExpandVolumeRequest) {}, false, nil},
		{"no staging path", func(r *csi.NodeExpandVolumeRequest) { r.StagingTargetPath = "" }, true, []string{"resize /dev/dm-3 /target"}},
		{"no more than paths", func(r *csi.NodeExpandVolumeRequest) {
			r.StagingTargetPath, r.CapacityRange, r.VolumeCapability = "", nil, nil
		}, true, []string{"resize /dev/dm-3 /target"}},
		{"a raw device", block, true, nil},
		{"a raw device, known by its path alone", func(r *csi.NodeExpandVolumeRequest) {
			r.StagingTargetPath, r.VolumePath, r.VolumeCapability = "", "/device", nil
		}, true, nil},
		{"published read-only, and staged for writing", func(r *csi.NodeExpandVolumeRequest) {
			r.StagingTargetPath, r.VolumePath, r.VolumeCapability = "", "/reader", nil
		}, true, []string{"resize /dev/dm-3 /staging"}},
		{"mounted read-only", func(r *csi.NodeExpandVolumeRequest) {
			r.VolumeCapability = request(fsType("", "ro")).GetVolumeCapability()
		}, true, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			f := newFake()
			f.mounts["/staging"], f.mounts["/target"], f.kinds["/device"] = fsMount(ourDevice, false), fsMount(ourDevice, false), mount.PathDevice
			f.mounts["/reader"] = fsMount(ourDevice, true)
			f.lags = test.lags
			s := f.server()
			for i := range 2 {
				reply, err := s.NodeExpandVolume(t.Context(), expandRequestOf(test.change))
				if err != nil || reply.GetCapacityBytes() != int64(lvm.GiB) {
					t.Fatalf("call %d: %v, %v", i, reply, err)
				}
			}
			f.expect(t, test.want...)
		})
	}
}

func TestExpandRefuses(t *testing.T) {
	for _, test := range []struct {
		what   string
		change func(*csi.NodeExpandVolumeRequest)
		kind   lvm.Kind
		says   string
	}{
		{"no volume", func(r *csi.NodeExpandVolumeRequest) { r.VolumeId = "" }, lvm.KindInvalid, "volume_id"},
		{"no path", func(r *csi.NodeExpandVolumeRequest) { r.VolumePath = "" }, lvm.KindInvalid, "volume_path"},
		{"garbage", func(r *csi.NodeExpandVolumeRequest) { r.VolumeId, r.VolumePath = "garbage", "some/path" }, lvm.KindNotFound, "garbage"},
		{"another node's volume", func(r *csi.NodeExpandVolumeRequest) { r.VolumeId = testVG + "/else" }, lvm.KindNotFound, "not on this node"},
		{"a path that nothing can be mounted at", func(r *csi.NodeExpandVolumeRequest) {
			r.StagingTargetPath, r.VolumePath = "", "some/path"
		}, lvm.KindNotFound, "some/path"},
		{"not mounted there", func(r *csi.NodeExpandVolumeRequest) { r.StagingTargetPath = "/nothing" }, lvm.KindNotFound, "/nothing"},
		{"another volume there", func(r *csi.NodeExpandVolumeRequest) { r.StagingTargetPath = "/other" }, lvm.KindNotFound, "/other"},
		{"larger than the device", func(r *csi.NodeExpandVolumeRequest) { r.CapacityRange.RequiredBytes = 1<<30 + 1 }, lvm.KindOutOfRange, "1 GiB"},
		{"a negative size", func(r *csi.NodeExpandVolumeRequest) { r.CapacityRange.RequiredBytes = -1 }, lvm.KindInvalid, "negative"},
		{"a capability of many nodes", func(r *csi.NodeExpandVolumeRequest) {
			r.VolumeCapability.AccessMode.Mode = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
		}, lvm.KindInvalid, "one node's own disk"},
	} {
		t.Run(test.what, func(t *testing.T) {
			f := newFake()
			f.lags = true
			f.mounts["/staging"], f.mounts["/other"] = fsMount(ourDevice, false), fsMount(otherDevice, false)
			_, err := f.server().NodeExpandVolume(t.Context(), expandRequestOf(test.change))
			if err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want kind %d with the words %q", err, test.kind, test.says)
			}
			f.expect(t)
		})
	}
}

// TestExpandReadOnlyMounts: a file system that is mounted read-only everywhere grows when it is staged for writing.
func TestExpandReadOnlyMounts(t *testing.T) {
	f := newFake()
	f.lags = true
	f.mounts["/staging"], f.mounts["/target"] = fsMount(ourDevice, true), fsMount(ourDevice, true)
	if reply, err := f.server().NodeExpandVolume(t.Context(), expandRequestOf()); err != nil || reply.GetCapacityBytes() != int64(lvm.GiB) {
		t.Errorf("got %v, %v", reply, err)
	}
	f.expect(t)
}

// A step that was lost between the volume's growth and its file system's is made up for when it is staged, also when a
// first attempt has mounted it and failed then.
func TestGrowthAtStage(t *testing.T) {
	f := newFake()
	f.content, f.lags, f.fail = filesystem.Content{Type: "xfs"}, true, "resize"
	if err := f.stage(t, fsType("xfs")); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "resize fails") {
		t.Errorf("the growth failed, and staging returned %v", err)
	}
	f.expect(t, "activate", "check xfs /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging xfs ", "resize /dev/dm-3 /staging")
	f.fail = ""
	must(t, f.stage(t, fsType("xfs")))
	f.expect(t, "activate", "resize /dev/dm-3 /staging")
	must(t, f.stage(t, fsType("xfs")))
	f.expect(t, "activate")
	must(t, f.unstage(t))
	f.expect(t, "unmount /staging")
	f.lags = true
	must(t, f.stage(t, fsType("xfs", "ro")))
	f.expect(t, "activate", "check xfs /dev/dm-3", "mount /dev/dm-3 /staging xfs ro")
}

// Copies are mounted beside their origins: xfs by an option, btrfs by a new UUID, and neither is formatted.
func TestCopies(t *testing.T) {
	copied := attribute(api.AttributeSource, testVG+"/s-1")
	for name, want := range map[string][]string{
		"ext4":  {"activate", "check ext4 /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging ext4 errors=remount-ro,noatime"},
		"xfs":   {"activate", "check xfs /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging xfs noatime,nouuid"},
		"btrfs": {"activate", "set UUID /dev/dm-3", "check btrfs /dev/dm-3", "create /staging", "mount /dev/dm-3 /staging btrfs noatime"},
	} {
		f := newFake()
		f.content = filesystem.Content{Type: name}
		must(t, f.stage(t, fsType(name, "noatime"), copied))
		f.expect(t, want...)
		f = newFake() // of a volume that was never formatted, or that lost its superblock
		f.content.Marked = true
		if err := f.stage(t, fsType(name), copied); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "never formats a copy") {
			t.Errorf("%s: a copy without a file system: %v", name, err)
		}
		f.expect(t, "activate")
	}
}

func TestHealth(t *testing.T) {
	f := newFake()
	for _, test := range []struct {
		failed []mount.DeviceNumber
		active bool
		want   int
	}{
		{nil, true, 0},
		{[]mount.DeviceNumber{otherDevice}, true, 0},
		{[]mount.DeviceNumber{otherDevice, ourDevice}, true, 1},
		{[]mount.DeviceNumber{ourDevice}, false, 0},
	} {
		f.failed, f.active = test.failed, test.active
		findings, err := f.server().Health(t.Context())
		if err != nil || len(findings) != test.want {
			t.Errorf("%+v: %v, %v", test, findings, err)
		}
		for _, finding := range findings {
			if finding.Type != lvm.ConditionFileSystemReadOnly || finding.Volume.Claim != "shop/data" || !strings.Contains(finding.Text, "vg-a/pvc-1") {
				t.Errorf("%+v", finding)
			}
		}
	}
}
