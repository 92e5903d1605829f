package node

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

const testVG = "AAAAAA-bbbb-CCCC-dddd-EEEE-ffff-GGGGGG"

var testID = lvm.ID{VG: testVG, LV: "pvc-1"}

// request is a NodePublishVolumeRequest that is good in all its parts: ext4, for writing.
func request(change ...func(*csi.NodePublishVolumeRequest)) *csi.NodePublishVolumeRequest {
	r := &csi.NodePublishVolumeRequest{
		VolumeId:          testID.String(),
		VolumeContext:     map[string]string{api.AttributeUUID: "uuid"},
		StagingTargetPath: "/staging",
		TargetPath:        "/target",
		VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		},
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func stageOf(r *csi.NodePublishVolumeRequest) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{VolumeId: r.GetVolumeId(), VolumeContext: r.GetVolumeContext(),
		StagingTargetPath: r.GetStagingTargetPath(), VolumeCapability: r.GetVolumeCapability()}
}

func mode(m csi.VolumeCapability_AccessMode_Mode) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.AccessMode.Mode = m }
}

func fsType(name string, flags ...string) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) {
		r.VolumeCapability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: name, MountFlags: flags}}
	}
}

func attribute(key, value string) func(*csi.NodePublishVolumeRequest) {
	return func(r *csi.NodePublishVolumeRequest) { r.VolumeContext[key] = value }
}

func rawBlock(r *csi.NodePublishVolumeRequest) {
	r.VolumeCapability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
}

func TestParseRequests(t *testing.T) {
	for _, test := range []struct {
		what   string
		change func(*csi.NodePublishVolumeRequest)
		want   volume
	}{
		{"the default file system", func(*csi.NodePublishVolumeRequest) {}, volume{fsType: "ext4"}},
		{"xfs with options", fsType("xfs", "noatime", "nodiscard"), volume{fsType: "xfs", flags: []string{"noatime", "nodiscard"}}},
		{"btrfs", fsType("btrfs"), volume{fsType: "btrfs"}},
		{"a copy", attribute(api.AttributeSource, "x/y"), volume{fsType: "ext4", hasSource: true}},
		{"options of mkfs", attribute(api.AttributeMkfsOptions, " -i  65536 -L data"), volume{fsType: "ext4", mkfs: " -i  65536 -L data"}},
		{"a label with a comma", fsType("", `context="a:b:c:s0:c1,c2"`), volume{fsType: "ext4", flags: []string{`context="a:b:c:s0:c1,c2"`}}},
		{"the option ro", fsType("", "ro"), volume{fsType: "ext4", flags: []string{"ro"}, readOnly: true, mountReadOnly: true}},
		{"the option ro behind a comma", fsType("", "noatime,ro"), volume{fsType: "ext4", flags: []string{"noatime,ro"}, readOnly: true, mountReadOnly: true}},
		{"a raw device", rawBlock, volume{block: true}},
		{"one pod", mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER), volume{fsType: "ext4", onePod: true}},
		{"several pods", mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER), volume{fsType: "ext4"}},
		{"a reader's mode", mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY), volume{fsType: "ext4", readOnly: true}},
		{"the readers of a ReadOnlyMany claim", mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY), volume{fsType: "ext4", readOnly: true}},
	} {
		t.Run(test.what, func(t *testing.T) {
			test.want.id, test.want.uuid = testID, "uuid"
			staged, err := parseStage(stageOf(request(test.change)))
			if diff := cmp.Diff(stageRequest{volume: test.want, staging: "/staging"}, staged, unexported); err != nil || diff != "" {
				t.Errorf("stage: %v\n%s", err, diff)
			}
			published, err := parsePublish(request(test.change))
			if diff := cmp.Diff(publishRequest{test.want, "/staging", "/target"}, published, unexported); err != nil || diff != "" {
				t.Errorf("publish: %v\n%s", err, diff)
			}
		})
	}
}

var unexported = cmp.Options{cmp.AllowUnexported(stageRequest{}, publishRequest{}, volume{}), cmpopts.EquateEmpty()}

func TestReadOnlyOfTheRequest(t *testing.T) {
	for flags, want := range map[string]bool{"ro": true, "noatime,ro": true, "ro,rw": false, "rw,ro": true, "rw": false} {
		if v, err := parseCapability(request(fsType("", flags)).GetVolumeCapability()); err != nil || v.mountReadOnly != want || v.readOnly != want {
			t.Errorf("%s: %+v, %v", flags, v, err)
		}
	}
	r, err := parsePublish(request(func(r *csi.NodePublishVolumeRequest) { r.Readonly = true }))
	if err != nil || !r.readOnly {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestParseRequestsRefuse(t *testing.T) {
	type change = func(*csi.NodePublishVolumeRequest)
	for _, test := range []struct {
		what   string
		change change
		kind   lvm.Kind
		says   string
	}{
		{"no volume", func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "" }, lvm.KindInvalid, "volume_id"},
		{"a handle of another driver", func(r *csi.NodePublishVolumeRequest) { r.VolumeId = "vol-123" }, lvm.KindNotFound, "vol-123"},
		{"no staging path", func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "" }, lvm.KindInvalid, "staging_target_path"},
		{"a relative staging path", func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "a/b" }, lvm.KindInvalid, "a/b"},
		{"the root as staging path", func(r *csi.NodePublishVolumeRequest) { r.StagingTargetPath = "/a/.." }, lvm.KindInvalid, "/a/.."},
		{"no capability", func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability = nil }, lvm.KindInvalid, "volume_capability"},
		{"no access type", func(r *csi.NodePublishVolumeRequest) { r.VolumeCapability.AccessType = nil }, lvm.KindInvalid, "mount or block"},
		{"no access mode", mode(csi.VolumeCapability_AccessMode_UNKNOWN), lvm.KindInvalid, "access mode"},
		{"a mode of the future", mode(99), lvm.KindInvalid, "99"},
		{"RWX", mode(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER), lvm.KindInvalid, "one node's own disk"},
		{"RWX of one writer", mode(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER), lvm.KindInvalid, "one node's own disk"},
		{"an unknown file system", fsType("ntfs"), lvm.KindInvalid, "ntfs"},
		{"a file system with a path", fsType("../ext4"), lvm.KindInvalid, "../ext4"},
		{"a bind mount", fsType("", "noatime", "bind"), lvm.KindInvalid, "bind"},
		{"a bind mount behind a comma", fsType("", "noatime,bind"), lvm.KindInvalid, `"bind" is not allowed for ext4`},
		{"a remount before a comma", fsType("", "remount,dev"), lvm.KindInvalid, `"remount" is not allowed`},
		{"an empty option", fsType("", ""), lvm.KindInvalid, "option"},
		{"no UUID", func(r *csi.NodePublishVolumeRequest) { r.VolumeContext = nil }, lvm.KindInvalid, api.AttributeUUID},
	} {
		t.Run(test.what, func(t *testing.T) {
			_, stageErr := parseStage(stageOf(request(test.change)))
			_, publishErr := parsePublish(request(test.change))
			for call, err := range map[string]error{"stage": stageErr, "publish": publishErr} {
				if err == nil || lvm.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s: got %v, want kind %d and the words %q", call, err, test.kind, test.says)
				}
			}
		})
	}
	for what, c := range map[string]change{
		"no target":         func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "" },
		"a relative target": func(r *csi.NodePublishVolumeRequest) { r.TargetPath = "pods/x" },
	} {
		if _, err := parsePublish(request(c)); lvm.KindOf(err) != lvm.KindInvalid || !strings.Contains(err.Error(), "target_path") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}
