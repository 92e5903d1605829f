package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/luks"
	"github.com/nodelvm/nodelvm/node/mount"
)

const (
	mappingPath                      = "/dev/dm-7"
	mappingDevice mount.DeviceNumber = 253<<8 | 7
)

// numberAt is the number of the device at a path of the fake.
func numberAt(device string) mount.DeviceNumber {
	if device == mappingPath {
		return mappingDevice
	}
	return ourDevice
}

// boundAt is the number of the device that is bound at a path.
func (f *fake) boundAt(path string) mount.DeviceNumber {
	if m := f.mounts[path]; m != nil && m.Device != 0 {
		return m.Device
	}
	return ourDevice
}

// fakeLUKS is the encryption of the fake's volume.
type fakeLUKS struct {
	*fake
	class  lvm.Class // of the volume
	open   bool
	last   luks.Request
	health string   // the problem
	calls  []string // of its methods
}

func (f *fakeLUKS) Stage(ctx context.Context, r luks.Request) (string, error) {
	f.last, f.calls = r, append(f.calls, "Stage")
	if f.content.Type == "" && f.held != 1 {
		return "", lvm.Errorf(lvm.KindInternal, "the logical volume is held %d times", f.held)
	}
	if !f.open {
		if err := r.Blank(ctx); err != nil {
			return "", err
		}
		if err := errors.Join(r.Formatted(), r.Cleared(mappingPath)); err != nil {
			return "", err
		}
	}
	f.open = true
	return mappingPath, f.do("open %s", r.Device)
}

func (f *fakeLUKS) Expand(_ context.Context, r luks.Request) (string, lvm.Bytes, error) {
	f.last, f.calls = r, append(f.calls, "Expand")
	if !f.open {
		return "", 0, lvm.Errorf(lvm.KindNotFound, "volume %s is encrypted and not open on this node", r.Handle)
	}
	return mappingPath, 2 * lvm.GiB, f.do("expand %s", r.Device)
}

func (f *fakeLUKS) Unstage(context.Context, string) error {
	f.open, f.calls = false, append(f.calls, "Unstage")
	return f.do("close")
}

func (f *fakeLUKS) Check(luks.Volume) (string, error) {
	f.calls = append(f.calls, "Check")
	return f.health, nil
}

func (f *fakeLUKS) Mapping(handle string) (string, uint64, bool, error) {
	f.calls = append(f.calls, "Mapping")
	if handle != testID.String() || !f.open {
		return "", 0, false, nil
	}
	return mappingPath, uint64(mappingDevice), true, nil
}

// newEncrypted is a fake with an encrypted volume.
func newEncrypted() *fake {
	f := newFake()
	f.luks.class = lvm.Class{Layout: lvm.LayoutLinear, Encryption: lvm.EncryptionLUKS2}
	return f
}

var secret = map[string]string{"key": "0123456789abcdefghijklmnopqrstuvwxyz"}

func (f *fake) stageEncrypted(t *testing.T, secret map[string]string, change ...func(*csi.NodePublishVolumeRequest)) error {
	t.Helper()
	r := stageOf(request(append(change, attribute(api.AttributeEncryption, "luks2"))...))
	r.Secrets = secret
	_, err := f.server().NodeStageVolume(t.Context(), r)
	return err
}

func (f *fake) publishEncrypted(t *testing.T, change ...func(*csi.NodePublishVolumeRequest)) error {
	t.Helper()
	return f.publish(t, append(change, attribute(api.AttributeEncryption, "luks2"))...)
}

// TestEncryptedVolumeThatMoved: such a volume has the header of the logical volume on its former node, and opens as a copy does. If its first format
// was interrupted there, it has that one's marks, too. A copy that moved is never formatted.
func TestEncryptedVolumeThatMoved(t *testing.T) {
	const move = "00000000000000000000000000000001"
	for _, test := range []struct {
		move          string
		source        lvm.ID
		moved, copied bool
	}{{"", lvm.ID{}, false, false}, {move, lvm.ID{}, true, true}, {move, lvm.ID{VG: testID.VG, LV: "s-1"}, false, true}} {
		f := newEncrypted()
		f.volume.Move, f.volume.Source, f.luks.open = test.move, test.source, test.copied // else it is formatted
		f.contents = map[string]filesystem.Content{mappingPath: {Type: "xfs"}}
		must(t, f.stageEncrypted(t, secret, fsType("xfs")))
		if v := f.luks.last.Volume; v.Copied != test.copied || v.Moved != test.moved || f.probed[mappingPath].Moved != test.moved || f.probed["/dev/dm-3"].Moved {
			t.Errorf("%+v: opened as %+v, marks %+v", test, v, f.probed)
		}
	}
}

func TestLifeOfAnEncryptedFileSystem(t *testing.T) {
	f := newEncrypted()
	must(t, f.stageEncrypted(t, secret, fsType("xfs")))
	f.expect(t, "activate", "open /dev/dm-3", "format xfs /dev/dm-7", "create /staging", "mount /dev/dm-7 /staging xfs ")
	if v := f.luks.last.Volume; v != luks.NewVolume(testID.String(), "uuid", "/dev/dm-3") || f.luks.last.Discards {
		t.Errorf("opened as %+v, %+v", v, f.luks.last.Discards)
	}
	must(t, f.stageEncrypted(t, secret, fsType("xfs")))
	f.expect(t, "activate", "open /dev/dm-3")
	must(t, f.publishEncrypted(t, fsType("xfs")))
	f.expect(t, "create /target", "bind /staging /target writable")
	must(t, f.publishEncrypted(t, fsType("xfs")))
	f.expect(t)
	if reply, err := f.server().NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: testID.String(), VolumePath: "/target"}); err != nil || len(reply.GetUsage()) != 2 {
		t.Errorf("its statistics: %v, %v", reply, err)
	}
	if err := f.unstage(t); lvm.KindOf(err) != lvm.KindInUse || !strings.Contains(err.Error(), "/target") || !f.luks.open {
		t.Errorf("unstaged while it is published: %v", err)
	}
	f.did = nil
	must(t, f.unpublish(t))
	must(t, f.unstage(t))
	f.expect(t, "unmount /target", "remove /target", "close")
	must(t, f.unstage(t))
	f.expect(t)
}

func TestLifeOfAnEncryptedRawDevice(t *testing.T) {
	f := newEncrypted()
	if err := f.publishEncrypted(t, rawBlock); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "csi.nodeStageSecretRef") {
		t.Errorf("published while it is closed: %v", err)
	}
	f.expect(t)
	must(t, f.stageEncrypted(t, secret, rawBlock))
	f.expect(t, "activate", "open /dev/dm-3")
	must(t, f.publishEncrypted(t, rawBlock))
	f.expect(t, "create /target", "bind /dev/dm-7 /target writable")
	reply, err := f.server().NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: testID.String(), VolumePath: "/target"})
	if err != nil || reply.GetUsage()[0].GetTotal() != int64(lvm.GiB) {
		t.Errorf("its statistics: %v, %v", reply, err)
	}
	must(t, f.unpublish(t))
	must(t, f.unstage(t))
	f.expect(t, "unmount /target", "remove /target", "close")
}

func TestExpandEncrypted(t *testing.T) {
	f := newEncrypted()
	expand := func(required lvm.Bytes, secret map[string]string) (*csi.NodeExpandVolumeResponse, error) {
		return f.server().NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{VolumeId: testID.String(), VolumePath: "/target",
			StagingTargetPath: "/staging", CapacityRange: &csi.CapacityRange{RequiredBytes: int64(required)}, Secrets: secret})
	}
	if _, err := expand(2*lvm.GiB, secret); lvm.KindOf(err) != lvm.KindNotFound {
		t.Errorf("expanded while it is closed: %v", err)
	}
	must(t, f.stageEncrypted(t, secret))
	f.did, f.lags = nil, true
	reply, err := expand(2*lvm.GiB, secret)
	if err != nil || reply.GetCapacityBytes() != int64(2*lvm.GiB) || f.luks.last.Keys.Current == nil {
		t.Errorf("%v, %v", reply, err)
	}
	f.expect(t, "expand /dev/dm-3", "resize /dev/dm-7 /staging")
	if _, err := expand(2*lvm.GiB+1, secret); lvm.KindOf(err) != lvm.KindOutOfRange {
		t.Errorf("a size that the mapping does not have: %v", err)
	}
	if _, err := expand(0, map[string]string{"key": "short"}); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), "csi.nodeExpandSecretRef") {
		t.Errorf("a Secret that is wrong: %v", err)
	}
	if _, err := expand(0, nil); err != nil { // a key is needed only to resize
		t.Errorf("without a Secret: %v", err)
	}
}

// TestPlainVolumesDoWithoutEncryption: in its whole life a volume without encryption causes one question, whether it has a mapping, at
// NodeUnstageVolume: that request has only the handle.
func TestPlainVolumesDoWithoutEncryption(t *testing.T) {
	for name, change := range map[string]func(*csi.NodePublishVolumeRequest){"file system": fsType("ext4"), "raw device": rawBlock} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			ctx, s, capability := t.Context(), f.server(), request(change).GetVolumeCapability()
			for _, step := range []struct {
				name string
				run  func() error
				want []string
			}{
				{"stage", func() error { return f.stage(t, change) }, nil},
				{"stage again", func() error { return f.stage(t, change) }, nil},
				{"publish", func() error { return f.publish(t, change) }, nil},
				{"expand", func() error {
					_, err := s.NodeExpandVolume(ctx, &csi.NodeExpandVolumeRequest{VolumeId: testID.String(), VolumePath: "/target", VolumeCapability: capability, Secrets: secret})
					return err
				}, nil},
				{"statistics", func() error {
					_, err := s.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: testID.String(), VolumePath: "/target"})
					return err
				}, nil},
				{"health", func() error { _, err := s.Health(ctx); return err }, nil},
				{"unpublish", func() error { return f.unpublish(t) }, nil},
				{"unstage", func() error { return f.unstage(t) }, []string{"Mapping"}},
			} {
				f.luks.calls = nil
				must(t, step.run())
				if !slices.Equal(f.luks.calls, step.want) {
					t.Errorf("%s called %q of the encryption, want %q", step.name, f.luks.calls, step.want)
				}
			}
		})
	}
}

// TestEncryptedVolumesNeedASecret: nothing changes, and the message says which field of which object is wrong.
func TestEncryptedVolumesNeedASecret(t *testing.T) {
	f := newEncrypted()
	for what, test := range map[string]struct {
		secret map[string]string
		says   []string
	}{
		"none":      {nil, []string{testID.String(), "csi.nodeStageSecretRef", "StorageClass"}},
		"no key":    {map[string]string{"password": "x"}, []string{testID.String(), "csi.nodeStageSecretRef", `"key"`, `"passphrase"`}},
		"short key": {map[string]string{"key": "x"}, []string{"csi.nodeStageSecretRef", "needs at least 32"}},
	} {
		err := f.stageEncrypted(t, test.secret)
		if lvm.KindOf(err) != lvm.KindInvalid || slices.ContainsFunc(test.says, func(s string) bool { return !strings.Contains(err.Error(), s) }) {
			t.Errorf("%s: %v", what, err)
		}
		f.expect(t)
	}
	r := stageOf(request(attribute(api.AttributeEncryption, "luks3")))
	if _, err := f.server().NodeStageVolume(t.Context(), r); lvm.KindOf(err) != lvm.KindInvalid {
		t.Errorf("an unknown encryption: %v", err)
	}
	f.expect(t)
}

// TestEncryptionNeedsABlankDevice: what is on the logical volume is never overwritten by a LUKS header.
func TestEncryptionNeedsABlankDevice(t *testing.T) {
	for what, content := range map[string]filesystem.Content{
		"a file system of type ext4": {Type: "ext4"}, "swap (other)": {Others: []string{"swap (other)"}},
		"the beginning of a file system of type xfs": {Unfinished: "xfs"}, "a mounted file system": {Mounted: true},
	} {
		f := newEncrypted()
		f.content, f.held = content, 0
		if content.Mounted {
			f.mounts["/elsewhere"] = fsMount(ourDevice, false)
		}
		if err := f.stageEncrypted(t, secret); lvm.KindOf(err) != lvm.KindConflict || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		f.expect(t, "activate")
	}
}

// TestDiscardsOfEncryptedVolumes: a thin pool gets its space back; elsewhere the class decides by its mount options.
func TestDiscardsOfEncryptedVolumes(t *testing.T) {
	for _, test := range []struct {
		layout  lvm.Layout
		options []string
		want    bool
	}{
		{lvm.LayoutThin, nil, true}, {lvm.LayoutLinear, nil, false}, {lvm.LayoutLinear, []string{"noatime,discard"}, true},
		{lvm.LayoutStriped, []string{"nodiscard"}, false}, {lvm.LayoutRAID1, []string{"discard=async"}, true},
	} {
		if got := passesDiscards(lvm.Class{Layout: test.layout}, test.options); got != test.want {
			t.Errorf("%s with %q: %t", test.layout, test.options, got)
		}
	}
}

// TestHealthOfEncryptedVolumes: failed file systems and signatures are found on the mapping.
func TestHealthOfEncryptedVolumes(t *testing.T) {
	f := newEncrypted()
	f.luks.open, f.failed = true, []mount.DeviceNumber{mappingDevice}
	list, err := f.server().Health(t.Context())
	if err != nil || len(list) != 1 || list[0].Type != lvm.ConditionFileSystemReadOnly || !strings.Contains(list[0].Text, mappingPath) {
		t.Errorf("%v, %v", list, err)
	}
	f.luks.open = false
	if list, err := f.server().Health(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("closed: %v, %v", list, err)
	}
	f.failed, f.luks.health = nil, "the LUKS header is damaged"
	list, err = f.server().Health(t.Context())
	if err != nil || len(list) != 1 || list[0].Type != lvm.ConditionEncryptionHeaderDamaged || list[0].Volume.Claim != "shop/data" || list[0].Text != f.luks.health {
		t.Errorf("a damaged header: %v, %v", list, err)
	}
}
