package controller

import (
	"maps"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/lvm"
)

// wanted is a request that is right in every way; each case changes one thing.
func wanted() *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:          "pvc-1",
		CapacityRange: &csi.CapacityRange{RequiredBytes: 5 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{
			mountCapability("", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER),
		},
		Parameters: map[string]string{
			"volumeGroup":                      "vg-nvme",
			"csi.storage.k8s.io/pvc/name":      "data-pg-0",
			"csi.storage.k8s.io/pvc/namespace": "shop",
			"csi.storage.k8s.io/pv/name":       "pvc-1",
		},
	}
}

func mountCapability(fsType string, mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func blockCapability(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
	}
}

func TestParseCreate(t *testing.T) {
	spec := lvm.Spec{
		Name:     "pvc-1",
		Class:    lvm.Class{Group: "vg-nvme", Layout: lvm.LayoutLinear, Wipe: lvm.WipeZero},
		Required: 5 * lvm.GiB,
		Claim:    "shop/data-pg-0",
	}
	for _, test := range []accepted{
		{"as it comes", func(*csi.CreateVolumeRequest) {}, func(*lvm.Spec) {}},
		{"a tag for a group", set("volumeGroup", "@fast"), func(s *lvm.Spec) { s.Class.Group = "@fast" }},
		{"wipe none", set("wipe", "none"), func(s *lvm.Spec) { s.Class.Wipe = lvm.WipeNone }},
		{"everything said", func(r *csi.CreateVolumeRequest) { set("wipe", "zero")(r); set("layout", "linear")(r) }, func(*lvm.Spec) {}},
		{"fstype left in by the caller", set("csi.storage.k8s.io/fstype", "xfs"), func(*lvm.Spec) {}},
		{"no claim named", set("csi.storage.k8s.io/pvc/name", ""), func(s *lvm.Spec) { s.Claim = "" }},
		{"no range: the default", func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }, func(s *lvm.Spec) { s.Required = 0 }},
		{"only a limit", size(0, 1<<30), func(s *lvm.Spec) { s.Required, s.Limit = 0, lvm.GiB }},
		{"exactly one size", size(1<<30, 1<<30), func(s *lvm.Spec) { s.Required, s.Limit = lvm.GiB, lvm.GiB }},
		{"the largest number", size(1<<63-1, 0), func(s *lvm.Spec) { s.Required = 1<<63 - 1 }},
		{"raw block", capability(blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)), func(*lvm.Spec) {}},
		{"xfs, one pod", capability(mountCapability("xfs", csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)), func(*lvm.Spec) {}},
		{"ext4, several pods", capability(mountCapability("ext4", csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)), func(*lvm.Spec) {}},
		{"readers", capability(mountCapability("", csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY)), func(*lvm.Spec) {}},
		named("a/b"), named(".."), named("-rf"), named("two words"), named("$(reboot); `x` | y > z & 'q' \"r\" \\"),
		named("Dünnwald-磁盘-💾"), named(strings.Repeat("n", 128)), named(strings.Repeat("盘", 42)), named("tab\tand\nline"),
	} {
		t.Run(test.name, func(t *testing.T) {
			req, want := wanted(), spec
			test.change(req)
			test.want(&want)
			got, err := parseCreate(req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// accepted is a request that is accepted, and how its spec differs from that of the plain request.
type accepted struct {
	name   string
	change func(*csi.CreateVolumeRequest)
	want   func(*lvm.Spec)
}

func named(name string) accepted {
	return accepted{"name " + name, func(r *csi.CreateVolumeRequest) { r.Name = name }, func(s *lvm.Spec) { s.Name = name }}
}

func TestParseCreateRefuses(t *testing.T) {
	const writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	for _, test := range []struct {
		name   string
		change func(*csi.CreateVolumeRequest)
		says   string // what the person who reads the event must find in it
	}{
		{"no name", func(r *csi.CreateVolumeRequest) { r.Name = "" }, "no name"},
		{"a name of 129 bytes", func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("n", 129) }, "129 bytes"},
		{"129 bytes in 43 letters", func(r *csi.CreateVolumeRequest) { r.Name = strings.Repeat("盘", 43) }, "129 bytes"},
		{"a NUL in the name", func(r *csi.CreateVolumeRequest) { r.Name = "a\x00b" }, "control character at byte 1"},
		{"a C1 control in the name", func(r *csi.CreateVolumeRequest) { r.Name = "a\u0085b" }, "control character"},
		{"not UTF-8", func(r *csi.CreateVolumeRequest) { r.Name = "a\xffb" }, "UTF-8"},
		{"no capabilities", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, "no volume_capabilities"},
		{"no access type", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessType = nil }, "mount or block"},
		{"no access mode", func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil }, "access mode"},
		{"RWX", capability(mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)), "ReadWriteOnce"},
		{"ROX", capability(mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)), "ReadWriteOnce"},
		{"RWX block", capability(blockCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER)), "one node's own disk"},
		{"a mode of the future", capability(blockCapability(99)), "access mode"},
		{"ntfs", capability(mountCapability("ntfs", writer)), `"ntfs"`},
		{"fs type in capitals", capability(mountCapability("EXT4", writer)), `"EXT4"`},
		{"two file systems", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("xfs", writer))
		}, "ext4 and xfs"},
		{"the second capability is bad", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
		}, "MULTI_NODE_MULTI_WRITER"},
		{"size 0", size(0, 0), "0 bytes"},
		{"negative size", size(-1, 0), "-1 bytes"},
		{"negative limit", size(1<<30, -5), "-5 bytes"},
		{"required over limit", size(2<<30, 1<<30), "2147483648 bytes is over the request's own limit of 1073741824"},
		{"no parameters", func(r *csi.CreateVolumeRequest) { r.Parameters = nil }, "volumeGroup"},
		{"no group", func(r *csi.CreateVolumeRequest) { delete(r.Parameters, "volumeGroup") }, "volumeGroup"},
		{"empty group", set("volumeGroup", ""), "volumeGroup"},
		{"a typo", set("volumegroup", "vg-nvme"), `"volumegroup"; known are volumeGroup, layout and wipe`},
		{"a typo beside the right one", set("Wipe", "none"), `"Wipe"`},
		{"unknown layout", set("layout", "raid2"), `"raid2"`},
		{"empty layout", set("layout", ""), "layout"},
		{"a layout to come", set("layout", "raid1"), "does not make yet"},
		{"unknown wipe", set("wipe", "shred"), `"shred"`},
		{"from a snapshot", func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
				Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: "snap-7"},
			}}
		}, `"snap-7"`},
		{"a clone", func(r *csi.CreateVolumeRequest) {
			r.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
				Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: "vol-7"},
			}}
		}, `"vol-7"`},
		{"content of an unknown kind", func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }, "empty volumes only"},
		{"mutable parameters", func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "9"} }, "volumeAttributesClassName"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := wanted()
			test.change(req)
			got, err := parseCreate(req)
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if kind := lvm.KindOf(err); kind != lvm.KindInvalid {
				t.Errorf("kind %d, want KindInvalid: %v", kind, err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the message does not say %q: %v", test.says, err)
			}
		})
	}
}

// FuzzParseParameters: whatever a StorageClass says, what is accepted is a class that lvm knows.
func FuzzParseParameters(f *testing.F) {
	f.Add("volumeGroup", "vg", "wipe", "none")
	f.Add("volumeGroup", "@t", "csi.storage.k8s.io/pvc/name", "x")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		parameters := map[string]string{key1: value1, key2: value2}
		before := maps.Clone(parameters)
		class, _, err := parseParameters(parameters)
		if !maps.Equal(before, parameters) {
			t.Fatal("the request was changed")
		}
		if err == nil && (class.Group == "" || class.Layout != lvm.LayoutLinear || class.Wipe != lvm.WipeZero && class.Wipe != lvm.WipeNone) {
			t.Fatalf("%v accepted as %+v", parameters, class)
		}
		if err != nil && lvm.KindOf(err) != lvm.KindInvalid {
			t.Fatalf("kind %d: %v", lvm.KindOf(err), err)
		}
	})
}

func set(key, value string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.Parameters[key] = value }
}

func size(required, limit int64) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	}
}

func capability(c *csi.VolumeCapability) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{c} }
}
