package conformance

import (
	"slices"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

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
