package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// Run checks that a Host, and the LVM below it, keeps its contract. It calls newFixture once for each test.
func Run(t *testing.T, newFixture func(t *testing.T) hosttest.Fixture) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b hosttest.Fixture)
	}{
		{"create", testCreate},
		{"create again", testCreateAgain},
		{"sizes", testSizes},
		{"names", testNames},
		{"bad requests", testBadRequests},
		{"capacity", testCapacity},
		{"fragments", testFragments},
		{"at once", testAtOnce},
		{"delete", testDelete},
		{"delete in use", testDeleteInUse},
		{"foreign volumes", testForeign},
		{"activate", testActivate},
		{"look", testLook},
		{"restart", testRestart},
		{"extend linear", testExtendLinear},
		{"limits", testLimits},
		{"thin", testThin},
		{"snapshots", testSnapshots},
		{"group snapshots", testGroupSnapshots},
		{"copies", testCopies},
		{"read-only copies", testReadOnlyCopies},
		{"encrypted", testEncrypted},
		{"an admin's pool", testAdminsPool},
		{"an adopted snapshot", testAdoptedSnapshot},
		{"an empty pool", testEmptyPool},
		{"messages left", testMessagesLeft},
		{"spoilt", testSpoilt},
		{"a move's source", testMoveSource},
		{"a move's target", testMoveTarget},
		{"rounds of a move", testRounds},
		{"rounds at a move's target", testRoundsReceived},
		{"a full copy", testFullCopy},
		{"a snapshot that is copied", testSnapshotDevice},
		{"a snapshot for a clone elsewhere", testSnapshotOfClone},
		{"a snapshot whose volume moves away", testSnapshotOfMovedVolume},
		{"renamed", testRenamed},
		{"a renamed volume", testRenamedVolume},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newFixture(t).OneAtATime()
			test.run(t, b)
			b.CleanUp(t)
		})
	}
	for _, s := range hosttest.Shapes {
		t.Run(s.String(), func(t *testing.T) {
			b := newFixture(t).OneAtATime()
			testShape(t, b, s)
			b.CleanUp(t)
		})
	}
}

func testCreate(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	spec := b.Spec("pvc-0f3b3c56-1c2d-4e5f-8a9b-000000000001", 10*lvm.MiB)
	var v lvm.Volume
	d.Counted(t, "create", 2, func() { v = d.MustCreate(t, spec) })
	want := lvm.Volume{
		ID: lvm.ID{VG: v.ID.VG, LV: spec.Name}, UUID: v.UUID, Name: spec.Name, Claim: spec.Claim, Cluster: hosttest.Cluster,
		Group: lvm.VGName(b.Group), Class: spec.Class, State: lvm.StateReady, Size: 12 * lvm.MiB,
		FormatMark: lvm.FormatMarkOffset(12 * lvm.MiB),
	}
	if v != want || v.UUID == "" {
		t.Errorf("created %+v, want %+v", v, want)
	}
	if id, err := lvm.ParseID(v.ID.String()); err != nil || id != v.ID {
		t.Errorf("its handle %q parses as %v, %v", v.ID, id, err)
	}
	if device, active, err := d.Device(t.Context(), v.ID, v.UUID); err != nil || !active || !strings.HasPrefix(device, "/dev/dm-") {
		t.Errorf("its device is %q, active %v, %v", device, active, err)
	}
}

func testCreateAgain(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	spec := b.Spec("again", 16*lvm.MiB)
	first := d.MustCreate(t, spec)
	tagged := spec
	tagged.Class.Group = "@" + b.Tag
	smaller := spec
	smaller.Required = 0
	for what, same := range map[string]lvm.Spec{"the same": spec, "by tag": tagged, "no size": smaller} {
		d.Counted(t, what, 0, func() {
			if v := d.MustCreate(t, same); v != first {
				t.Errorf("%s: %+v, want %+v", what, v, first)
			}
		})
	}
	larger, limited, unwiped := spec, spec, spec
	larger.Required = 20 * lvm.MiB
	limited.Required, limited.Limit = 8*lvm.MiB, 12*lvm.MiB
	unwiped.Class.Wipe = lvm.WipeNone
	for what, other := range map[string]lvm.Spec{"larger": larger, "limited": limited, "not wiped": unwiped} {
		d.Counted(t, what, 0, func() {
			hosttest.Refused(t, what, lvm.KindExists)(d.Create(t.Context(), other))
		})
	}
}

func testSizes(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	for i, test := range []struct{ required, limit, want lvm.Bytes }{
		{1, 0, 4 * lvm.MiB},
		{4 * lvm.MiB, 4 * lvm.MiB, 4 * lvm.MiB},
		{4*lvm.MiB + 1, 8 * lvm.MiB, 8 * lvm.MiB},
		{0, 11 * lvm.MiB, 8 * lvm.MiB},
	} {
		spec := b.Light(fmt.Sprintf("size-%d", i), test.required)
		spec.Limit = test.limit
		if v := d.MustCreate(t, spec); v.Size != test.want {
			t.Errorf("required %d, limit %d: got %d, want %d", test.required, test.limit, v.Size, test.want)
		}
	}
}

func testNames(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	seen := map[lvm.ID]string{}
	for _, name := range []string{
		"a", "-n", "--", "..", ".", "a/b", "../../etc", "snapshot0", "pvmove0", "x_rimage_0", "@all", "v-1", "pvc-zzz", "two words", "a\nb",
		"$(reboot)", "`x`;|&'\"\\", strings.Repeat("n", 128), strings.Repeat("ü", 64), "データ", "\x00", "pvc-0F3B3C56-1C2D-4E5F-8A9B-000000000001",
	} {
		v := d.MustCreate(t, b.Light(name, 1))
		if v.Name != name {
			t.Errorf("created as %q, read as %q", name, v.Name)
		}
		if other, taken := seen[v.ID]; taken {
			t.Errorf("%q and %q are one volume", name, other)
		}
		seen[v.ID] = name
	}
}

// testBadRequests: the driver refuses them without a command, and names what no node can provide apart from what this node lacks.
func testBadRequests(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	before := d.MustCapacity(t, b.Class())
	name := func(name string) func(*lvm.Spec) { return func(s *lvm.Spec) { s.Name = name } }
	group := func(group string) func(*lvm.Spec) { return func(s *lvm.Spec) { s.Class.Group = group } }
	sizes := func(required, limit lvm.Bytes) func(*lvm.Spec) {
		return func(s *lvm.Spec) { s.Required, s.Limit = required, limit }
	}
	for _, test := range []struct {
		kind   lvm.Kind
		change []func(*lvm.Spec)
	}{
		{lvm.KindInvalid, []func(*lvm.Spec){name(""), name(strings.Repeat("n", 129)), name("\xff")}},
		{lvm.KindInvalid, []func(*lvm.Spec){group(""), group("-vg"), group("vg/lv"), group(".."), group("v g"), group("@"), group("@a b"), group("@{x}")}},
		{lvm.KindOutOfRange, []func(*lvm.Spec){sizes(-1, 0), sizes(0, -1), sizes(9*lvm.MiB, 8*lvm.MiB), sizes(5*lvm.MiB, 6*lvm.MiB), sizes(0, lvm.MiB), sizes(1<<63-1, 1<<63-1)}},
		{lvm.KindInsufficientCapacity, []func(*lvm.Spec){sizes(1<<63-1, 0), sizes(1<<62, 0), group("no-such-group"), group("@no-such-tag")}},
	} {
		for _, change := range test.change {
			spec := b.Spec("bad", lvm.MiB)
			change(&spec)
			what := fmt.Sprintf("%q in %q of %d to %d bytes", spec.Name, spec.Class.Group, spec.Required, spec.Limit)
			d.Counted(t, what, 0, func() { hosttest.Refused(t, what, test.kind)(d.Create(t.Context(), spec)) })
		}
	}
	for _, group := range []string{"no-such-group", "@no-such-tag"} {
		class := b.Class()
		class.Group = group
		if c := d.MustCapacity(t, class); c != (lvm.Capacity{}) {
			t.Errorf("capacity of %s is %+v, want none", group, c)
		}
	}
	if after := d.MustCapacity(t, b.Class()); after != before {
		t.Errorf("refused requests changed the capacity from %+v to %+v", before, after)
	}
}

// testMessagesLeft: messages that an interrupted command left after the pool counted them leak nothing, neither while the
// driver runs nor when it starts; and a start removes what no request got.
func testMessagesLeft(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	volumes := map[string]lvm.Volume{}
	for _, name := range []string{"stays", "first", "second", "unanswered"} {
		volumes[name] = d.MustCreate(t, b.Thin(name, 4*lvm.MiB, lvm.ID{}))
	}
	complete := func(when string) {
		t.Helper()
		if lost := b.Lost(t); len(lost) > 0 {
			t.Errorf("%s the pool and LVM differ in the devices %v", when, lost)
		}
	}
	complete("at first")
	_, err := d.Activate(t.Context(), volumes["first"].ID, volumes["first"].UUID) // tags it as ready, like the others
	hosttest.Must(t, err)
	b.Leave(t, "delete 99")
	hosttest.Must(t, d.Delete(t.Context(), volumes["first"].ID))
	complete("after the deletion of another volume")

	d.Stop(t)
	b.Leave(t, "delete 99")
	d = b.Start(t)
	if left := hosttest.FindLV(t, b.ReadGroup(t), lvm.DefaultPool).Thin.Messages; len(left) > 0 {
		t.Errorf("after a start LVM has %q for the pool", left)
	}
	d.Counted(t, "deletion", 1, func() { hosttest.Must(t, d.Delete(t.Context(), volumes["second"].ID)) })
	complete("after a start and a deletion")

	d.Stop(t)
	unanswered := volumes["unanswered"].ID.LV
	b.Admin(t, "lvchange", "--deltag", "nodelvm.state=ready", "--addtag", "nodelvm.state=creating", b.Group+"/"+unanswered)
	b.Leave(t, "create "+unanswered)
	d = b.Start(t)
	if slices.ContainsFunc(b.ReadGroup(t).LVs, func(lv lvm.LV) bool { return lv.Name == unanswered }) {
		t.Error("a volume that no request got exists after a start")
	}
	complete("after a start that has removed a volume")
	if now := d.MustCreate(t, b.Thin("stays", 4*lvm.MiB, lvm.ID{})); now != volumes["stays"] {
		t.Errorf("the existing volume became %+v", now)
	}
	b.DeleteAll(t, d)
	b.RemovePool(t)
}
