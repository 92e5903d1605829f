package lvmcmd

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// TestPrepareArgs: no command answers yes to LVM, and names cannot become options.
func TestPrepareArgs(t *testing.T) {
	g := lvm.Group{Name: "vg", PVs: []lvm.PV{{Device: "/dev/sda"}, {}}}
	d := lvm.Declaration{Name: "vg", Tags: []string{"fast"}}
	device := ondisk.Disk{BlockDevice: ondisk.BlockDevice{Path: "/dev/sdb", Size: 3*lvm.GiB + 1}}
	for _, test := range []struct {
		want string
		argv []string
	}{
		{"pvcreate --devices /dev/sdb --norestorefile --uuid UUID --metadatasize 24576k -- /dev/sdb", PVCreateArgs(device, "UUID")},
		{"vgcreate --devices /dev/sdb,/dev/sdc --physicalextentsize 4m --setautoactivation n --addtag fast --addtag nodelvm.node=node-1 -- vg /dev/sdb /dev/sdc", VGCreateArgs(d, "node-1", []string{"/dev/sdb", "/dev/sdc"})},
		{"vgcreate --devices /dev/sdb --physicalextentsize 4m --setautoactivation n --addtag fast -- vg /dev/sdb", VGCreateArgs(d, "", []string{"/dev/sdb"})},
		{"vgextend --devices /dev/sda,/dev/sdb -- vg /dev/sdb", VGExtendArgs(g, []string{"/dev/sdb"})},
		{"vgchange --devices /dev/sda --addtag fast -- vg", VGTagArgs(g, nil, d.Tags)},
	} {
		if got := strings.Join(test.argv, " "); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
	if uuid := ondisk.NewPVUUID(); !ondisk.IsUUID(uuid) || !strings.HasPrefix(uuid, ondisk.PVUUIDPrefix) || uuid == ondisk.NewPVUUID() {
		t.Errorf("UUID %q", uuid)
	}
	for size, want := range map[lvm.Bytes]lvm.Bytes{16 * lvm.MiB: lvm.MiB, 4 * lvm.GiB: 32 * lvm.MiB, 100 * lvm.GiB: 64 * lvm.MiB} {
		if got := metadataSize(size); got != want {
			t.Errorf("metadata of a device of %s: %s", size, got)
		}
	}
}
