//go:build reallvm

package lvmtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestNodeTag_RealLVM: the group gets the node's tag once, which the node's own LVM ignores; the driver reports a group that
// this LVM activates automatically at boot.
func TestNodeTag_RealLVM(t *testing.T) {
	b := realFixture(t)
	dir := t.TempDir()
	driver := func(name string) *Driver {
		t.Helper()
		return startRealWith(t, dir, func(c *lvm.Config) { c.Node = name })
	}
	d := driver("node-a")
	t.Cleanup(func() { // the next test needs the unchanged group
		d.close(t)
		admin(t, "vgchange", "--deltag", "nodelvm.node=node-a", "--setautoactivation", "y", realGroup)
	})
	selfActive := func(want bool) {
		t.Helper()
		inv, err := d.Inventory(t.Context())
		must(t, err)
		for _, g := range inv.Groups {
			if g.Name == realGroup && g.AutoActivation != want {
				t.Errorf("the node activates the group automatically: reported %v", g.AutoActivation)
			}
		}
	}
	spec := b.light("one", 8*lvm.MiB)
	thin, mirror := spec, spec
	thin.Name, thin.Class = "thin", lvm.Class{Group: b.Group, Layout: lvm.LayoutThin}
	mirror.Name, mirror.Class = "mirror", lvm.Class{Group: b.Group, Layout: lvm.LayoutRAID1, Wipe: lvm.WipeNone}
	var volumes []lvm.Volume
	d.counted(t, "the first volume", 2, func() { volumes = append(volumes, d.create(t, spec)) })
	d.counted(t, "the second", 1, func() { volumes = append(volumes, d.create(t, mirror)) })
	volumes = append(volumes, d.create(t, thin))
	clone := thin
	clone.Name, clone.Source = "clone", volumes[2].ID
	volumes = append(volumes, d.create(t, clone))
	selfActive(true)
	admin(t, "vgchange", "--setautoactivation", "n", realGroup)
	selfActive(false)
	d.close(t)
	if tags := strings.Split(admin(t, "vgs", "--noheadings", "-o", "vg_tags", realGroup), ","); !slices.Contains(tags, "nodelvm.node=node-a") || len(tags) != 2 {
		t.Errorf("tags %q", tags)
	}
	admin(t, "vgchange", "-an", realGroup)
	admin(t, "vgchange", "-aay", realGroup) // as a node does when it boots
	if active := admin(t, "lvs", "--noheadings", "-o", "lv_name", "-S", "lv_active=active", realGroup); active != "" {
		t.Errorf("the node activates automatically: %s", active)
	}

	d = driver("node-b")
	other := d
	if c := other.capacity(t, b.class()); c != (lvm.Capacity{}) {
		t.Errorf("another node offers %+v", c)
	}
	for _, v := range volumes {
		if err := other.Delete(t.Context(), v.ID); err == nil {
			t.Errorf("another node deletes %s", v.Name)
		}
		if _, err := other.Activate(t.Context(), v.ID, v.UUID); err == nil || !strings.Contains(err.Error(), "node node-a uses it") {
			t.Errorf("another node activates %s: %v", v.Name, err)
		}
	}
	other.close(t)

	d = driver("node-a")
	for _, v := range slices.Backward(volumes) {
		path, err := d.Activate(t.Context(), v.ID, v.UUID)
		if err != nil || path == "" {
			t.Errorf("%s: %q, %v", v.Name, path, err)
		}
		must(t, d.Delete(t.Context(), v.ID))
	}
	d.waitWiped(t)
}
