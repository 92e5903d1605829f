//go:build reallvm

package identity

import (
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestNodeTag_RealLVM: the group gets the node's tag once, which the node's own LVM ignores; the driver reports a group that
// this LVM activates automatically at boot.
func TestNodeTag_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t)
	dir := t.TempDir()
	driver := func(name string) *hosttest.Driver {
		t.Helper()
		return reallvm.StartDriverWith(t, dir, func(c *lvm.Config) { c.Node = name })
	}
	d := driver("node-a")
	t.Cleanup(func() { // the next test needs the unchanged group
		d.Stop(t)
		reallvm.Admin(t, "vgchange", "--deltag", "nodelvm.node=node-a", "--deltag", "nodelvm.cluster="+hosttest.Cluster, "--setautoactivation", "y", reallvm.Group)
	})
	selfActive := func(want bool) {
		t.Helper()
		inv, err := d.Inventory(t.Context())
		hosttest.Must(t, err)
		for _, g := range inv.Groups {
			if g.Name == reallvm.Group && g.AutoActivation != want {
				t.Errorf("the node activates the group automatically: reported %v", g.AutoActivation)
			}
		}
	}
	spec := b.Light("one", 8*lvm.MiB)
	thin, mirror := spec, spec
	thin.Name, thin.Class = "thin", lvm.Class{Group: b.Group, Layout: lvm.LayoutThin}
	mirror.Name, mirror.Class = "mirror", lvm.Class{Group: b.Group, Layout: lvm.LayoutRAID1, Wipe: lvm.WipeNone}
	var volumes []lvm.Volume
	d.Counted(t, "the first volume", 2, func() { volumes = append(volumes, d.MustCreate(t, spec)) })
	d.Counted(t, "the second", 1, func() { volumes = append(volumes, d.MustCreate(t, mirror)) })
	volumes = append(volumes, d.MustCreate(t, thin))
	clone := thin
	clone.Name, clone.Source = "clone", volumes[2].ID
	volumes = append(volumes, d.MustCreate(t, clone))
	selfActive(true)
	reallvm.Admin(t, "vgchange", "--setautoactivation", "n", reallvm.Group)
	selfActive(false)
	d.Stop(t)
	if tags := strings.Split(reallvm.Admin(t, "vgs", "--noheadings", "-o", "vg_tags", reallvm.Group), ","); !slices.Contains(tags, "nodelvm.node=node-a") || !slices.Contains(tags, "nodelvm.cluster="+hosttest.Cluster) || len(tags) != 3 {
		t.Errorf("tags %q", tags)
	}
	reallvm.Admin(t, "vgchange", "-an", reallvm.Group)
	reallvm.Admin(t, "vgchange", "-aay", reallvm.Group) // as a node does when it boots
	if active := reallvm.Admin(t, "lvs", "--noheadings", "-o", "lv_name", "-S", "lv_active=active", reallvm.Group); active != "" {
		t.Errorf("the node activates automatically: %s", active)
	}

	d = driver("node-a")
	for _, v := range slices.Backward(volumes) {
		path, err := d.Activate(t.Context(), v.ID, v.UUID)
		if err != nil || path == "" {
			t.Errorf("%s: %q, %v", v.Name, path, err)
		}
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
	}
	d.WaitWiped(t)
}
