package node

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/mount"
)

const (
	ourDevice   mount.DeviceNumber = 253<<8 | 3
	otherDevice mount.DeviceNumber = 253<<8 | 4
)

// verdict is whether the volume is there already, or the kind of the error and a word of it.
type verdict struct {
	done bool
	kind lvm.Kind
	says string
}

var act, nothing = verdict{}, verdict{done: true}

func refuse(kind lvm.Kind, says string) verdict { return verdict{kind: kind, says: says} }

func (v verdict) check(t *testing.T, done bool, err error) {
	t.Helper()
	switch {
	case v.says == "" && (err != nil || done != v.done):
		t.Errorf("got %t, %v; want %t", done, err, v.done)
	case v.says != "" && (err == nil || lvm.KindOf(err) != v.kind || !strings.Contains(err.Error(), v.says)):
		t.Errorf("got %t, %v; want kind %d with the words %q", done, err, v.kind, v.says)
	}
}

func fsMount(device mount.DeviceNumber, readOnly bool) *mount.Entry {
	return &mount.Entry{Device: device, FSType: "ext4", Source: "/dev/dm-4", ReadOnly: readOnly}
}

// labelled is our mount on a kernel with an SELinux policy; "" is a mount in which each file has its own.
func labelled(label string) mount.PathInfo {
	entry := fsMount(ourDevice, false)
	if entry.Options = "rw,seclabel"; label != "" {
		entry.Options = `rw,context="` + label + `"`
	}
	return mount.PathInfo{Mount: entry}
}

// TestPlanWithLabel: a volume with another label than requested is neither staged nor published. A request without a label is for any.
func TestPlanWithLabel(t *testing.T) {
	other := refuse(lvm.KindExists, `with the options rw,context="u:r:t:s0:c1,c2", but context="u:r:t:s0:c1,c3" was requested`)
	for _, test := range []struct {
		what, requested string
		place           mount.PathInfo
		want            verdict
	}{
		{"the same", `context="u:r:t:s0:c2,c1"`, labelled("u:r:t:s0:c1,c2"), nothing},
		{"another", `context="u:r:t:s0:c1,c3"`, labelled("u:r:t:s0:c1,c2"), other},
		{"mounted without", `context="u:r:t:s0"`, labelled(""), refuse(lvm.KindExists, `with the options rw,seclabel, but`)},
		{"requested without", "noatime", labelled("u:r:t:s0"), nothing},
		{"no SELinux", `context="u:r:t:s0"`, mount.PathInfo{Mount: fsMount(ourDevice, false)}, nothing},
	} {
		t.Run(test.what, func(t *testing.T) {
			v := volume{id: testID, fsType: "ext4", flags: []string{test.requested}}
			done, err := planStage(test.place, ourDevice, stageRequest{volume: v})
			test.want.check(t, done, err)
			r := publishRequest{v, "/staging", "/target"}
			done, err = planPublish(r, test.place, test.place, nil, ourDevice)
			test.want.check(t, done, err)
			want := test.want
			want.done = false
			done, err = planPublish(r, mount.PathInfo{}, test.place, nil, ourDevice)
			want.check(t, done, err)
		})
	}
}

// TestMountedElsewhereIsNotDamaged: the kernel may refuse a second mount with other options, such as an SELinux label.
func TestMountedElsewhereIsNotDamaged(t *testing.T) {
	f := newFake()
	f.fail = "mount /dev/dm-3"
	if err := f.stage(t); lvm.KindOf(err) != lvm.KindInternal || !strings.Contains(err.Error(), "may be damaged") {
		t.Errorf("a failed mount: %v", err)
	}
	f.mounts["/elsewhere"] = fsMount(ourDevice, false)
	err := f.stage(t)
	refuse(lvm.KindConflict, "is mounted at /elsewhere").check(t, false, err)
	if strings.Contains(err.Error(), "damaged") {
		t.Error(err)
	}
}

func TestPlanStage(t *testing.T) {
	for _, test := range []struct {
		what     string
		place    mount.PathInfo
		want     verdict
		readOnly bool
	}{
		{"nothing there", mount.PathInfo{}, act, false},
		{"an empty directory", mount.PathInfo{Kind: mount.PathEmptyDir}, act, false},
		{"our mount", mount.PathInfo{Mount: fsMount(ourDevice, false)}, nothing, false},
		{"our mount, read-only", mount.PathInfo{Mount: fsMount(ourDevice, true)}, nothing, true},
		{"our mount, for writing before", mount.PathInfo{Mount: fsMount(ourDevice, false)}, refuse(lvm.KindExists, "writable, but read-only was requested"), true},
		{"our mount, read-only before", mount.PathInfo{Mount: fsMount(ourDevice, true)}, refuse(lvm.KindExists, "read-only, but writable was requested"), false},
		{"our mount, of another type", mount.PathInfo{Mount: &mount.Entry{Device: ourDevice, FSType: "xfs"}}, refuse(lvm.KindExists, "of type xfs, but ext4 was requested"), false},
		{"another volume's mount", mount.PathInfo{Mount: fsMount(otherDevice, false)}, refuse(lvm.KindConflict, "/dev/dm-4"), false},
		{"somebody's files", mount.PathInfo{Kind: mount.PathNonEmptyDir}, refuse(lvm.KindConflict, "not empty"), false},
		{"an empty file", mount.PathInfo{Kind: mount.PathEmptyFile}, refuse(lvm.KindConflict, "an empty file"), false},
		{"a file", mount.PathInfo{Kind: mount.PathNonEmptyFile}, refuse(lvm.KindConflict, "with content"), false},
		{"a device", mount.PathInfo{Kind: mount.PathDevice, Device: ourDevice}, refuse(lvm.KindConflict, "a block device"), false},
		{"a link", mount.PathInfo{Kind: mount.PathOther}, refuse(lvm.KindConflict, "neither"), false},
	} {
		t.Run(test.what, func(t *testing.T) {
			done, err := planStage(test.place, ourDevice, stageRequest{volume: volume{fsType: "ext4", mountReadOnly: test.readOnly}})
			test.want.check(t, done, err)
		})
	}
}

func TestPlanPublish(t *testing.T) {
	staged := mount.PathInfo{Mount: fsMount(ourDevice, false)}
	mounted := func(readOnly bool) mount.PathInfo { return mount.PathInfo{Mount: fsMount(ourDevice, readOnly)} }
	bound := func(device mount.DeviceNumber, readOnly bool) mount.PathInfo {
		return mount.PathInfo{Kind: mount.PathDevice, Device: device, Mount: &mount.Entry{FSType: "devtmpfs", Source: "dev", ReadOnly: readOnly}}
	}
	file, block := volume{id: testID}, volume{id: testID, block: true}
	single, singleBlock := volume{id: testID, onePod: true}, volume{id: testID, block: true, onePod: true}
	// Each case runs with the volume at its staging path, at its target and at another pod's.
	mounts := []mount.Point{{Path: "/staging"}, {Path: "/target"}, {Path: "/another"}}
	for _, test := range []struct {
		what           string
		volume         volume
		readOnly       bool
		target, staged mount.PathInfo
		want           verdict
	}{
		{"first", file, false, mount.PathInfo{}, staged, act},
		{"onto an empty directory", file, false, mount.PathInfo{Kind: mount.PathEmptyDir}, staged, act},
		{"again", file, false, mounted(false), staged, nothing},
		{"again, read-only", file, true, mounted(true), staged, nothing},
		{"for writing before, now read-only", file, true, mounted(false), staged, refuse(lvm.KindExists, "writable, but read-only was requested")},
		{"read-only before, now for writing", file, false, mounted(true), staged, refuse(lvm.KindExists, "read-only, but writable was requested")},
		{"not staged", file, false, mount.PathInfo{}, mount.PathInfo{Kind: mount.PathEmptyDir}, refuse(lvm.KindConflict, "staged there first")},
		{"another volume is staged", file, false, mount.PathInfo{}, mount.PathInfo{Mount: fsMount(otherDevice, false)}, refuse(lvm.KindConflict, "staged there first")},
		{"another volume at the target", file, false, mount.PathInfo{Mount: fsMount(otherDevice, false)}, staged, refuse(lvm.KindConflict, "/dev/dm-4")},
		{"somebody's files", file, false, mount.PathInfo{Kind: mount.PathNonEmptyDir}, staged, refuse(lvm.KindConflict, "not empty")},
		{"a file where a directory belongs", file, false, mount.PathInfo{Kind: mount.PathEmptyFile}, staged, refuse(lvm.KindConflict, "an empty file")},
		{"one pod at a time", single, false, mount.PathInfo{}, staged, refuse(lvm.KindInUse, "/another")},
		{"one pod at a time, again", single, false, mounted(false), staged, nothing},
		{"one pod at a time, block", singleBlock, false, mount.PathInfo{}, mount.PathInfo{}, refuse(lvm.KindInUse, "/")},
		{"block, first", block, false, mount.PathInfo{}, mount.PathInfo{}, act},
		{"block, onto an empty file", block, false, mount.PathInfo{Kind: mount.PathEmptyFile}, mount.PathInfo{}, act},
		{"block, again", block, false, bound(ourDevice, false), mount.PathInfo{}, nothing},
		{"block, for writing before, now read-only", block, true, bound(ourDevice, false), mount.PathInfo{}, refuse(lvm.KindExists, "writable")},
		{"block, another device", block, false, bound(otherDevice, false), mount.PathInfo{}, refuse(lvm.KindConflict, "devtmpfs")},
		{"block, a file system at the target", block, false, mounted(false), mount.PathInfo{}, refuse(lvm.KindConflict, "/dev/dm-4")},
		{"block, a directory", block, false, mount.PathInfo{Kind: mount.PathEmptyDir}, mount.PathInfo{}, refuse(lvm.KindConflict, "an empty directory")},
		{"block, a bare device node", block, false, mount.PathInfo{Kind: mount.PathDevice, Device: ourDevice}, mount.PathInfo{}, refuse(lvm.KindConflict, "a block device")},
	} {
		t.Run(test.what, func(t *testing.T) {
			test.volume.readOnly = test.readOnly
			test.target.Path, test.staged.Path = "/target", "/staging"
			done, err := planPublish(publishRequest{test.volume, "/staging", "/target"}, test.target, test.staged, mounts, ourDevice)
			test.want.check(t, done, err)
		})
	}
}

func TestRemovable(t *testing.T) {
	for kind, want := range map[mount.PathKind]bool{
		mount.PathAbsent: true, mount.PathEmptyDir: true, mount.PathEmptyFile: true,
		mount.PathNonEmptyDir: false, mount.PathNonEmptyFile: false, mount.PathDevice: false, mount.PathOther: false,
	} {
		if err := checkRemovable(mount.PathInfo{Kind: kind}); (err == nil) != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestStageKeepsHoldsOff: no move begins to hold a volume after it was found ready for its pod, and before its device is open; and no stage begins while one does.
func TestStageKeepsHoldsOff(t *testing.T) {
	f := newFake()
	f.during = func(call string) {
		if f.opening != 1 {
			t.Errorf("%s: %d stages keep moves off", call, f.opening)
		}
	}
	if must(t, f.stage(t)); f.opening != 0 {
		t.Error("after it, moves are still kept off")
	}
	f = newFake()
	f.holding = true
	if err := f.stage(t); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("staged: %v", err)
	}
	f.expect(t)
}

// TestRawPublishLooksAtTheState: a raw device whose deletion began is not published, also if it begins during the publication.
func TestRawPublishLooksAtTheState(t *testing.T) {
	for gone, want := range map[int][]string{1: nil, 2: {"create /target", "bind /dev/dm-3 /target writable", "unmount /target", "remove /target"}} {
		f := newFake()
		f.gone = gone
		if err := f.publish(t, rawBlock); lvm.KindOf(err) != lvm.KindNotFound || !strings.Contains(err.Error(), "deleting") {
			t.Errorf("published: %v", err)
		}
		f.expect(t, want...)
	}
}
