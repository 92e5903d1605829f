package identity

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// TestOwnsRenamedVolume: a pod can end after lvrename, and its mounted device still belongs to that volume only.
func TestOwnsRenamedVolume(t *testing.T) {
	node := hosttest.NewNode()
	d := hosttest.OnFake(node).OneAtATime().Start(t)
	v := d.MustCreate(t, lvm.Spec{Name: usualName, Class: lvm.Class{Group: "vg-test", Layout: lvm.LayoutLinear}, Required: 8 * lvm.MiB})
	other := d.MustCreate(t, lvm.Spec{Name: otherName, Class: lvm.Class{Group: "vg-test", Layout: lvm.LayoutLinear}, Required: 8 * lvm.MiB})
	path := d.MustActivate(t, v)
	var minor uint32
	_, err := fmt.Sscanf(path, "/dev/dm-%d", &minor)
	hosttest.Must(t, err)
	for _, name := range []string{v.ID.LV, "kept"} {
		node.Rename("vg-test", v.ID.LV, name)
		for id, want := range map[lvm.ID]bool{v.ID: true, other.ID: false} {
			if owns, err := d.Owns(t.Context(), id, unix.Mkdev(253, minor)); err != nil || owns != want {
				t.Errorf("called %s, the device is %s: %v, %v", name, id, owns, err)
			}
		}
		node.Rename("vg-test", name, v.ID.LV)
	}
}
