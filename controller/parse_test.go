package controller

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"

	"github.com/nodelvm/nodelvm/api"
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
		Class:    lvm.Class{Group: "vg-nvme", Layout: lvm.LayoutLinear},
		Required: 5 * lvm.GiB,
		Claim:    "shop/data-pg-0",
	}
	for _, test := range []accepted{
		{"as it comes", func(*csi.CreateVolumeRequest) {}, func(*lvm.Spec) {}},
		{"a tag for a group", set("volumeGroup", "@fast"), func(s *lvm.Spec) { s.Class.Group = "@fast" }},
		{"wipe none", set("wipe", "none"), func(s *lvm.Spec) { s.Class.Wipe = lvm.WipeNone }},
		{"everything said", func(r *csi.CreateVolumeRequest) { set("wipe", "zero")(r); set("layout", "linear")(r) }, func(s *lvm.Spec) { s.Class.Wipe = lvm.WipeZero }},
		{"striped", func(r *csi.CreateVolumeRequest) {
			set("layout", "striped")(r)
			set("stripes", "3")(r)
			set("stripeSize", "128Ki")(r)
		}, func(s *lvm.Spec) {
			s.Class.Layout, s.Class.Stripes, s.Class.StripeSize = lvm.LayoutStriped, 3, 128*lvm.KiB
		}},
		{"mirrors", func(r *csi.CreateVolumeRequest) { set("layout", "raid1")(r); set("mirrors", "2")(r) }, func(s *lvm.Spec) {
			s.Class.Layout, s.Class.Mirrors = lvm.LayoutRAID1, 2
		}},
		{"a thin pool", func(r *csi.CreateVolumeRequest) {
			set("layout", "thin")(r)
			set("thinPool", "fast")(r)
			set("overprovisionRatio", "1.5")(r)
		}, func(s *lvm.Spec) { s.Class.Layout, s.Class.Pool, s.Class.Overprovision = lvm.LayoutThin, "fast", 150 }},
		{"from a snapshot", source(elsewhereSnapshot, ""), func(s *lvm.Spec) { s.Source = idOf(elsewhereSnapshot) }},
		{"a clone", source("", elsewhere), func(s *lvm.Spec) { s.Source = idOf(elsewhere) }},
		{"fstype left in by the caller", set("csi.storage.k8s.io/fstype", "xfs"), func(*lvm.Spec) {}},
		{"no claim named", set("csi.storage.k8s.io/pvc/name", ""), func(s *lvm.Spec) { s.Claim = "" }},
		{"no range: the default", func(r *csi.CreateVolumeRequest) { r.CapacityRange = nil }, func(s *lvm.Spec) { s.Required = 0 }},
		{"only a limit", size(0, 1<<30), func(s *lvm.Spec) { s.Required, s.Limit = 0, lvm.GiB }},
		{"exactly one size", size(1<<30, 1<<30), func(s *lvm.Spec) { s.Required, s.Limit = lvm.GiB, lvm.GiB }},
		{"the largest number", size(1<<63-1, 0), func(s *lvm.Spec) { s.Required = 1<<63 - 1 }},
		{"raw block", capability(blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)), func(s *lvm.Spec) { s.Block = true }},
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
			got, _, err := parser.parseCreate(req)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// parser is a server whose staging knows the mount option noatime, and whose xfs needs 300 MiB.
var parser = New(Config{CheckFileSystem: checkFileSystem, CheckMountOptions: checkMountOptions, MinimumSize: minimumSize})

// mountedWith is a capability with mount options.
func mountedWith(fsType string, options ...string) *csi.VolumeCapability {
	c := mountCapability(fsType, writer)
	c.GetMount().MountFlags = options
	return c
}

func idOf(handle string) lvm.ID {
	vg, lv, _ := strings.Cut(handle, "/")
	return lvm.ID{VG: lvm.VGUUID(vg), LV: lv}
}

// source makes the request one for a copy of the snapshot or the volume, whichever is named.
func source(snapshot, volume string) func(*csi.CreateVolumeRequest) {
	return func(r *csi.CreateVolumeRequest) {
		r.VolumeContentSource = &csi.VolumeContentSource{}
		if snapshot != "" {
			r.VolumeContentSource.Type = &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: snapshot}}
		}
		if volume != "" {
			r.VolumeContentSource.Type = &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: volume}}
		}
	}
}

// The options for mkfs reach the node as they stand, and only where there will be a file system.
func TestMkfsOptions(t *testing.T) {
	for _, test := range []struct {
		name       string
		capability *csi.VolumeCapability
		options    string
		want       string // "error": refused
	}{
		{"allowed", mountCapability("xfs", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), "-m 1", "-m 1"},
		{"not allowed", mountCapability("", csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), "-F", "error"},
		{"a raw device", blockCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER), "-m 1", ""},
	} {
		req := wanted()
		set("mkfsOptions", test.options)(req)
		capability(test.capability)(req)
		_, got, err := parser.parseCreate(req)
		if err != nil {
			expectKind(t, err, lvm.KindInvalid, test.options)
			got = "error"
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
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
		{"RWX", capability(mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)), "access mode ReadWriteMany is not possible: the volume is on one node's own disk; use ReadWriteOnce"},
		{"ROX", capability(mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)), "access mode ReadOnlyMany is only for a read-only copy: name a snapshot, or a claim with a thin volume, as the claim's dataSource. For an empty volume use ReadWriteOnce, and readOnly: true"},
		{"readers and writers", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY))
		}, "ReadOnlyMany cannot be combined"},
		{"a mount option that staging refuses", capability(mountedWith("", "noatime", "bind")), `"bind"`},
		{"RWX block", capability(blockCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER)), "one node's own disk"},
		{"a mode of the future", capability(blockCapability(99)), "access mode"},
		{"ntfs", capability(mountCapability("ntfs", writer)), `"ntfs"`},
		{"fs type in capitals", capability(mountCapability("EXT4", writer)), `"EXT4"`},
		{"two file systems", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("xfs", writer))
		}, "ext4 and xfs"},
		{"the second capability is bad", func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, mountCapability("", csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
		}, "ReadWriteMany"},
		{"size 0", size(0, 0), "the required size is 0 bytes; ask for a positive size"},
		{"negative size", size(-1, 0), "-1 bytes"},
		{"negative limit", size(1<<30, -5), "-5 bytes"},
		{"required over limit", size(2<<30, 1<<30), "2147483648 bytes is over the request's own limit of 1073741824"},
		{"no parameters", func(r *csi.CreateVolumeRequest) { r.Parameters = nil }, "volumeGroup"},
		{"no group", func(r *csi.CreateVolumeRequest) { delete(r.Parameters, "volumeGroup") }, "volumeGroup"},
		{"empty group", set("volumeGroup", ""), "volumeGroup"},
		{"a typo", set("volumegroup", "vg-nvme"), `"volumegroup" (did you mean volumeGroup?); known are encryption, layout, `},
		{"a typo beside the right one", set("Wipe", "none"), `"Wipe"`},
		{"unknown layout", set("layout", "raid2"), `"raid2"`},
		{"empty layout", set("layout", ""), "layout"},
		{"stripes 0", set("stripes", "0"), `stripes is "0"`},
		{"negative stripes", set("stripes", "-2"), "1 or more"},
		{"stripes with a plus", set("stripes", "+2"), "1 or more"},
		{"stripes of 20 digits", set("stripes", "99999999999999999999"), "1 or more"},
		{"half a mirror", set("mirrors", "0.5"), `mirrors is "0.5"`},
		{"a stripe size without a unit", set("stripeSize", "64"), "with its unit"},
		{"a stripe size of nothing", set("stripeSize", "0Ki"), "like 64Ki"},
		{"a stripe size in words", set("stripeSize", "64 KiB"), "like 64Ki"},
		{"no pool", set("thinPool", ""), "nodelvm-thin"},
		{"promise less than there is", set("overprovisionRatio", "0.5"), "from 1"},
		{"promise too much", set("overprovisionRatio", "100.01"), "to 100"},
		{"three decimals", set("overprovisionRatio", "1.005"), "two decimals"},
		{"percent", set("overprovisionRatio", "150%"), "like 1 or 1.5"},
		{"an exponent", set("overprovisionRatio", "1e2"), "like 1 or 1.5"},
		{"unknown wipe", set("wipe", "shred"), `"shred"`},
		{"content of an unknown kind", func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }, "unknown kind"},
		{"mutable parameters", func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"iops": "9"} }, "ioLimits.enabled"},
	} {
		t.Run(test.name, func(t *testing.T) {
			req := wanted()
			test.change(req)
			got, _, err := parser.parseCreate(req)
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

// A file system that could never be made is refused with the size that it needs; a raw device may be as small as it likes.
func TestTooSmallForTheFileSystem(t *testing.T) {
	for _, test := range []struct {
		name            string
		capability      *csi.VolumeCapability
		required, limit int64
		refused         bool
	}{
		{"xfs, too small", mountCapability("xfs", writer), 50 << 20, 0, true},
		{"xfs, a byte too small", mountCapability("xfs", writer), 300<<20 - 1, 0, true},
		{"xfs, just enough", mountCapability("xfs", writer), 300 << 20, 0, false},
		{"xfs, limited", mountCapability("xfs", writer), 0, 100 << 20, true},
		{"ext4", mountCapability("", writer), 8 << 20, 0, false},
		{"a raw device", blockCapability(writer), 1 << 20, 0, false},
	} {
		req := wanted()
		capability(test.capability)(req)
		size(test.required, test.limit)(req)
		_, _, err := parser.parseCreate(req)
		if test.refused {
			expectKind(t, err, lvm.KindOutOfRange, "xfs", "300 MiB or more")
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	req := wanted()
	capability(mountCapability("xfs", writer))(req)
	req.CapacityRange = nil
	if _, _, err := parser.parseCreate(req); err != nil {
		t.Errorf("the default size: %v", err)
	}
}

// FuzzParseParameters: whatever a StorageClass says, what is accepted is a class that lvm knows.
func FuzzParseParameters(f *testing.F) {
	f.Add("volumeGroup", "vg", "wipe", "none")
	f.Add("volumeGroup", "vg", "overprovisionRatio", "1.5")
	f.Add("volumeGroup", "vg", "stripeSize", "64Ki")
	f.Add("volumeGroup", "@t", "csi.storage.k8s.io/pvc/name", "x")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		parameters := map[string]string{key1: value1, key2: value2}
		before := maps.Clone(parameters)
		p, err := parseParameters(parameters)
		if !maps.Equal(before, parameters) {
			t.Fatal("the request was changed")
		}
		c := p.class
		if err == nil && (c.Group == "" || !slices.Contains(lvm.Layouts, c.Layout) || c.Stripes < 0 || c.Mirrors < 0 ||
			c.StripeSize < 0 || c.StripeSize%lvm.KiB != 0 || c.Overprovision != 0 && (c.Overprovision < 100 || c.Overprovision > 10000)) {
			t.Fatalf("%v accepted as %+v", parameters, c)
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

// TestClassOfEncryptedVolumesNamesSecrets: CreateVolume does not see these parameters, so the class is checked.
func TestClassOfEncryptedVolumesNamesSecrets(t *testing.T) {
	class := map[string]string{"volumeGroup": "vg", "encryption": "luks2"}
	for _, key := range []string{
		api.ParameterStageSecretName, api.ParameterStageSecretNamespace, api.ParameterExpandSecretName, api.ParameterExpandSecretNamespace,
	} {
		_, err := ParseClass(class, checkFileSystem)
		expectKind(t, err, lvm.KindInvalid, key)
		class[key] = "x"
	}
	if parsed, err := ParseClass(class, checkFileSystem); err != nil || parsed.Encryption != lvm.EncryptionLUKS2 {
		t.Errorf("%+v, %v", parsed, err)
	}
	delete(class, "encryption")
	if _, err := ParseClass(class, checkFileSystem); err != nil {
		t.Errorf("without encryption: %v", err)
	}
}

func TestUnknownParameterNamesTheNearest(t *testing.T) {
	_, err := parseParameters(map[string]string{"volumegroup": "vg"})
	if err == nil || !strings.Contains(err.Error(), `unknown parameter "volumegroup" (did you mean volumeGroup?)`) {
		t.Errorf("the error is %v", err)
	}
}
