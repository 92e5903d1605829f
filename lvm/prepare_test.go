package lvm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func yes() *bool { b := true; return &b }

// TestSelector: all conditions must hold; only a pattern without wildcards names a device.
func TestSelector(t *testing.T) {
	d := disk{
		blockDevice: blockDevice{path: "/dev/sdb", size: 100 * GiB}, model: "FAST DISK 9", rotational: true,
		links: []string{"/dev/disk/by-id/ata-FAST_9", "/dev/disk/by-path/pci-0-ata-1"},
	}
	for _, test := range []struct {
		name            string
		s               Selector
		selected, named bool
	}{
		{"by path", Selector{Paths: []string{"/dev/sd?"}}, true, false},
		{"by name", Selector{Paths: []string{"/dev/sda", "/dev/sdb"}}, true, true},
		{"by id", Selector{Paths: []string{"/dev/disk/by-id/ata-*"}}, true, false},
		{"by the very id", Selector{Paths: []string{"/dev/disk/by-path/pci-0-ata-1"}}, true, true},
		{"another path", Selector{Paths: []string{"/dev/sdc", "/dev/*/x"}}, false, false},
		{"a wildcard does not reach into folders", Selector{Paths: []string{"/dev/disk/*"}}, false, false},
		{"sizes, both ends included", Selector{MinSize: 100 * GiB, MaxSize: 100 * GiB}, true, false},
		{"too small", Selector{Paths: []string{"/dev/sdb"}, MinSize: 100*GiB + 1}, false, false},
		{"too large", Selector{MaxSize: 100*GiB - 1}, false, false},
		{"rotational", Selector{Rotational: yes()}, true, false},
		{"not rotational", Selector{Rotational: new(bool)}, false, false},
		{"model", Selector{Model: "FAST*"}, true, false},
		{"another model", Selector{Model: "SLOW*"}, false, false},
	} {
		if selected, named := test.s.selects(d); selected != test.selected || named != test.named {
			t.Errorf("%s: selected %v, named %v", test.name, selected, named)
		}
	}
	d.model = ""
	if selected, _ := (Selector{Model: "FAST*"}).selects(d); selected {
		t.Error("a device without a model has any model")
	}
}

// TestCheckDeclarations: what is wrong is told; the rest gets its defaults.
func TestCheckDeclarations(t *testing.T) {
	good := Declaration{Name: "vg", Tags: []string{"fast"}, Devices: []Selector{{Paths: []string{"/dev/*"}}}, Pool: PoolPolicy{Size: GiB}}
	checked, err := checkDeclarations([]Declaration{good})
	must(t, err)
	if want := (PoolPolicy{Name: DefaultPool, Size: GiB, GrowData: 80, GrowMetadata: 60}); checked[0].Pool != want || good.Pool.Name != "" {
		t.Errorf("%+v", checked)
	}
	for words, change := range map[string]func(*Declaration){
		"a name of letters":       func(d *Declaration) { d.Name = "-y" },
		"volume group \"\"":       func(d *Declaration) { d.Name = "" },
		"\"@tag\"":                func(d *Declaration) { d.Name = "@tag" },
		"not a tag":               func(d *Declaration) { d.Tags = []string{"a b"} },
		"at least one selector":   func(d *Declaration) { d.Devices = nil },
		"a limit of 0":            func(d *Declaration) { d.MaxDevices = -1 },
		"would take every disk":   func(d *Declaration) { d.Devices = []Selector{{}} },
		"is not right":            func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"/dev/["}}} },
		"an empty list":           func(d *Declaration) { d.Devices = []Selector{{Paths: []string{}, MinSize: GiB}} },
		"of 1 bytes cannot":       func(d *Declaration) { d.Devices = []Selector{{MinSize: 1}} },   // 100m, thousandths, for 100M
		"of 500 bytes cannot":     func(d *Declaration) { d.Devices = []Selector{{MaxSize: 500}} }, // without a unit
		"\"/*/*\" is not a path":  func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"/*/*"}}} },
		" 3 bytes cannot be made": func(d *Declaration) { d.Pool.Size = 3 },
		"not a path below /dev":   func(d *Declaration) { d.Devices = []Selector{{Paths: []string{"sdb"}}} },
		"select nothing":          func(d *Declaration) { d.Devices = []Selector{{MinSize: 2, MaxSize: 1}} },
		"not a name for a thin":   func(d *Declaration) { d.Pool.Name = "a/b" },
		"1 to 95 percent":         func(d *Declaration) { d.Pool.GrowData = 100 },
		"-1 bytes cannot be made": func(d *Declaration) { d.Pool.Size = -1 },
	} {
		bad := good
		change(&bad)
		_, err := checkDeclarations([]Declaration{bad})
		if KindOf(err) != KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
	if _, err := checkDeclarations([]Declaration{good, good}); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("twice: %v", err)
	}
}

// TestUnfit: each thing that the kernel knows against a device, in the order in which it matters.
func TestUnfit(t *testing.T) {
	whole := disk{blockDevice: blockDevice{path: "/dev/sdb", size: GiB}}
	for words, change := range map[string]func(*disk){
		"belongs to volume group vg": func(d *disk) { d.group, d.uses = "vg", []string{"is swap space"} },
		"it carries what":            func(d *disk) { d.uses, d.parts = []string{"carries what is mounted at /"}, []string{"sdb1"} },
		"a part of dm-3, md0":        func(d *disk) { d.holders = []string{"dm-3", "md0"} },
		"partitions (sdb1)":          func(d *disk) { d.parts = []string{"sdb1"} },
		"does not answer":            func(d *disk) { d.silent = true },
		"read-only":                  func(d *disk) { d.readOnly = true },
		"it is zoned":                func(d *disk) { d.zoned = true },
		"smaller than 16 MiB":        func(d *disk) { d.size = 16*MiB - 1 },
	} {
		d := whole
		change(&d)
		for _, named := range []bool{true, false} {
			if why := d.unfit(named); !strings.Contains(why, words) {
				t.Errorf("%s: %q", words, why)
			}
		}
	}
	for words, change := range map[string]func(*disk){
		"it is a partition": func(d *disk) { d.partition = true },
		"it is removable":   func(d *disk) { d.removable = true },
		"not a disk":        func(d *disk) { d.virtual = true },
	} {
		d := whole
		change(&d)
		if why := d.unfit(false); !strings.Contains(why, words) {
			t.Errorf("%s: %q", words, why)
		}
		if why := d.unfit(true); why != "" {
			t.Errorf("%s, named: %q", words, why)
		}
	}
	shared := whole
	shared.name, shared.virtual = "nvme0n1", true
	if why := shared.unfit(false); !strings.Contains(why, "an NVMe disk that can be reached over several paths") {
		t.Errorf("an NVMe disk with several ports: %q", why)
	}
	if why := whole.unfit(false); why != "" {
		t.Error(why)
	}
}

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

// TestCompareNames orders devices as people do.
func TestCompareNames(t *testing.T) {
	order := []string{"/dev/sda", "/dev/sda2", "/dev/sda10", "/dev/sdb"}
	for i := range order[1:] {
		if compareNames(order[i], order[i+1]) >= 0 || compareNames(order[i+1], order[i]) <= 0 {
			t.Errorf("%s after %s", order[i], order[i+1])
		}
	}
}

// TestReadMounts: mounts by device, btrfs by its source, and names with spaces.
func TestReadMounts(t *testing.T) {
	text := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n" +
		"2 1 8:1 /etc/hosts /etc/hosts rw shared:1 - ext4 /dev/sda1 rw\n" +
		"3 1 0:30 / /mnt/with\\040space rw - btrfs /dev/none rw\n" +
		"4 1 7:0 / /mnt/with\\040space rw - xfs /dev/loop0 rw\n5 bad\n"
	file := filepath.Join(t.TempDir(), "mountinfo")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	mounts, err := readMounts(file)
	must(t, err)
	if got := mounts["8:1"]; len(got) != 2 || placeOf(got) != "/" {
		t.Errorf("%q", mounts)
	}
	if got := mounts["7:0"]; len(got) != 1 || got[0] != "/mnt/with space" || len(mounts) != 2 {
		t.Errorf("%q", mounts)
	}
}
