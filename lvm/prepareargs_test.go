package lvm

import (
	"strings"
	"testing"
)

// TestPrepareArgs: nothing answers yes to LVM, and names cannot become options.
func TestPrepareArgs(t *testing.T) {
	g := Group{Name: "vg", PVs: []PV{{Device: "/dev/sda"}, {}}}
	d := Declaration{Name: "vg", Tags: []string{"fast"}}
	device := disk{blockDevice: blockDevice{path: "/dev/sdb", size: 3*GiB + 1}}
	uuid := ""
	for _, test := range []struct {
		want string
		argv []string
	}{
		{"pvcreate --devices /dev/sdb --norestorefile --uuid UUID --metadatasize 24576k -- /dev/sdb", pvcreateArgs(device)},
		{"vgcreate --devices /dev/sdb,/dev/sdc --physicalextentsize 4m --setautoactivation n --addtag fast --addtag nodelvm.node=node-1 -- vg /dev/sdb /dev/sdc", vgcreateArgs(d, "node-1", []string{"/dev/sdb", "/dev/sdc"})},
		{"vgcreate --devices /dev/sdb --physicalextentsize 4m --setautoactivation n --addtag fast -- vg /dev/sdb", vgcreateArgs(d, "", []string{"/dev/sdb"})},
		{"vgextend --devices /dev/sda,/dev/sdb -- vg /dev/sdb", vgextendArgs(g, []string{"/dev/sdb"})},
		{"vgchange --devices /dev/sda --addtag fast -- vg", vgtagArgs(g, nil, d.Tags)},
	} {
		for i, arg := range test.argv {
			if arg == "--uuid" {
				uuid, test.argv[i+1] = test.argv[i+1], "UUID"
			}
		}
		if got := strings.Join(test.argv, " "); got != test.want {
			t.Errorf("%s\nwant %s", got, test.want)
		}
	}
	if !isUUID(uuid) || !strings.HasPrefix(uuid, pvMark) || uuid == newPVUUID() {
		t.Errorf("UUID %q", uuid)
	}
	for size, want := range map[Bytes]Bytes{16 * MiB: MiB, 4 * GiB: 32 * MiB, 100 * GiB: 64 * MiB} {
		if got := metadataSize(size); got != want {
			t.Errorf("metadata of a device of %s: %s", size, got)
		}
	}
}
