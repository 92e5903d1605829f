//go:build reallvm

package identity

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// forgedGroup is the name of a volume group that a tenant forges.
const forgedGroup = "evil"

// forge returns the first 2 MiB of a disk of a tenant's volume group, made in a file: the group has the tag of the real one,
// and edit changes its metadata before it is written.
func forge(t testing.TB, edit func(text string) string) []byte {
	t.Helper()
	disk := reallvm.MakeDisk(t, "forged", 32)
	defer func() {
		reallvm.Detach(t, disk)
		hosttest.Must(t, os.Remove(filepath.Join("/dev/shm", reallvm.Group+"-forged")))
	}()
	alone := func(argv ...string) {
		reallvm.Admin(t, append([]string{argv[0], "--devices", disk}, argv[1:]...)...)
	}
	alone("pvcreate", "-y", disk)
	alone("vgcreate", "-y", "--addtag", "fast", forgedGroup, disk)
	alone("lvcreate", "-y", "-an", "-Zn", "-Wn", "-l1", "-n", "stolen", forgedGroup)
	head := make([]byte, 2*lvm.MiB)
	f, err := os.Open(disk)
	hosttest.Must(t, err)
	_, err = f.Read(head)
	hosttest.Must(t, err)
	hosttest.Must(t, f.Close())
	if !strings.Contains(string(head), "LABELONE") || !strings.Contains(string(head), "stolen") {
		t.Fatal("forge found no group")
	}
	rewrite(head[4096:], edit)
	return head
}

// rewrite changes the text in a metadata area (lvm2, lib/format_text/layout.h).
func rewrite(area []byte, edit func(text string) string) {
	sum := func(p []byte) uint32 { return ^crc32.Update(^uint32(0xf597a6cf), crc32.IEEETable, p) }
	at, size := binary.LittleEndian.Uint64(area[40:]), binary.LittleEndian.Uint64(area[48:])
	text := []byte(edit(string(area[at : at+size])))
	copy(area[at:], text)
	binary.LittleEndian.PutUint64(area[48:], uint64(len(text)))
	binary.LittleEndian.PutUint32(area[56:], sum(text))
	binary.LittleEndian.PutUint32(area, sum(area[4:512]))
}

// stacking puts devices on a tenant's volume; it returns the one for the forged group, and a function that removes them.
type stacking func(t testing.TB, volume string) (device string, remove func())

func onLoop(t testing.TB, below string, args ...string) (string, func()) {
	t.Helper()
	loop := strings.TrimSpace(reallvm.Tool(t, "losetup", append(append([]string{"--find", "--show"}, args...), below)...))
	return loop, func() {
		began := time.Now()
		if reallvm.Detach(t, loop); time.Since(began) > 5*time.Second {
			t.Errorf("%s was detached after %v: the driver holds it", loop, time.Since(began))
		}
	}
}

func mapTo(t testing.TB, name, table string) (string, func()) {
	t.Helper()
	reallvm.Dmsetup(t, "create", "--noudevsync", name, "--table", table)
	return reallvm.Mapped(t, name), func() { reallvm.Dmsetup(t, "remove", "--retry", "--noudevsync", name) }
}

func sectors(t testing.TB, device string) string {
	t.Helper()
	return strings.TrimSpace(reallvm.Tool(t, "blockdev", "--getsz", device))
}

// stackings are devices on a volume, of which TestPositions has more. The kubelet creates the first one for each raw block volume.
var stackings = map[string]stacking{
	"a raw block volume": func(t testing.TB, volume string) (string, func()) { return onLoop(t, volume) },
	"dm-crypt": func(t testing.TB, volume string) (string, func()) {
		return mapTo(t, "evil-crypt", fmt.Sprintf("0 %s crypt aes-xts-plain64 %s 0 %s 0", sectors(t, volume), strings.Repeat("0123456789abcdef", 8), volume))
	},
	"a partition": func(t testing.TB, volume string) (string, func()) {
		table := make([]byte, 512)
		table[446+4] = 0x8e
		binary.LittleEndian.PutUint32(table[446+8:], 2048)
		binary.LittleEndian.PutUint32(table[446+12:], uint32(32*lvm.MiB/512))
		table[510], table[511] = 0x55, 0xaa
		reallvm.Overwrite(t, volume, table)
		loop, remove := onLoop(t, volume, "--partscan")
		part := loop + "p1"
		var number []byte
		wait.For(t, 10*time.Second, "the kernel shows the partition", func() bool {
			var err error
			number, err = os.ReadFile("/sys/class/block/" + filepath.Base(part) + "/dev")
			return err == nil
		})
		major, minor, _ := strings.Cut(strings.TrimSpace(string(number)), ":")
		_ = exec.CommandContext(t.Context(), "mknod", part, "b", major, minor).Run() // if devtmpfs has not
		return part, remove
	},
	"a file on its file system": func(t testing.TB, volume string) (string, func()) {
		place := t.TempDir()
		reallvm.Tool(t, "mkfs.ext4", "-q", volume)
		reallvm.Tool(t, "mount", volume, place)
		file := filepath.Join(place, "disk")
		hosttest.Must(t, os.WriteFile(file, nil, 0o600))
		hosttest.Must(t, os.Truncate(file, int64(32*lvm.MiB)))
		loop, remove := onLoop(t, file)
		return loop, func() { remove(); reallvm.Tool(t, "umount", place) }
	},
}

// TestTenantGroup_RealLVM: the driver and its LVM ignore a volume group that a tenant writes to their own volume, whatever
// device is between the two and whatever the group claims to be.
func TestTenantGroup_RealLVM(t *testing.T) {
	reallvm.DisableUdevRules(t, true) // the node's own LVM by default activates every group
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	victim := d.MustCreate(t, b.Light("victim", 8*lvm.MiB))
	attacker := d.MustCreate(t, b.Light("attacker", 48*lvm.MiB))
	volume := d.MustDevice(t, attacker)
	d = b.Start(t) // both are tagged as ready: no later commit changes what the test compares
	real, _ := reallvm.FindGroup(reallvm.ReadDisks(t), reallvm.Group)
	claims := map[string]func(string) string{
		"another group of the tag": func(text string) string { return text },
		"the group itself, later": func(text string) string {
			own := text[strings.Index(text, `id = "`)+6:][:38]
			text = strings.Replace(text, own, string(real.UUID), 1)
			text = strings.Replace(text, "evil {", reallvm.Group+" {", 1)
			return strings.Replace(text, "seqno = ", "seqno = 9", 1)
		},
		"a namesake": func(text string) string { return strings.Replace(text, "evil {", reallvm.Group+" {", 1) },
		"a volume's name and UUID": func(text string) string {
			at := strings.Index(text, "stolen {")
			own := text[at+strings.Index(text[at:], `id = "`)+6:][:38]
			return strings.Replace(strings.Replace(text, own, victim.UUID, 1), "stolen {", victim.ID.LV+" {", 1)
		},
	}
	for what, edit := range claims {
		t.Run(what, func(t *testing.T) {
			head := forge(t, edit)
			checkIgnored(t, d, b, victim, head, volume, stackings["a raw block volume"])
		})
	}
	head := forge(t, claims["another group of the tag"])
	for what, stack := range stackings {
		t.Run(what, func(t *testing.T) {
			checkIgnored(t, d, b, victim, head, volume, stack)
		})
	}
	again, err := d.Create(t.Context(), b.Light("victim", 8*lvm.MiB))
	if hosttest.Must(t, err); again.UUID != victim.UUID {
		t.Errorf("the volume was created again: %+v", again)
	}
	b.CleanUp(t)
}

// checkIgnored checks a running driver, and a new one, while a forged group is on a tenant's volume.
func checkIgnored(t *testing.T, d *hosttest.Driver, b hosttest.Fixture, victim lvm.Volume, head []byte, volume string, stack stacking) {
	t.Helper()
	class := lvm.Class{Group: "@" + b.Tag, Layout: lvm.LayoutLinear, Wipe: lvm.WipeNone}
	before, groups := d.MustCapacity(t, class), reallvm.ReadDisks(t).Groups
	device, remove := stack(t, volume)
	defer func() { reallvm.Overwrite(t, volume, make([]byte, 4*lvm.MiB)) }()
	defer remove()
	reallvm.Overwrite(t, device, head)
	if shown := reallvm.Output(t, exec.CommandContext(t.Context(), "lvm", "pvs", "--noheadings", "-o", "pv_name", "--config", "devices { scan_lvs=1 }", "--devices", device)); !strings.Contains(shown, device) {
		t.Fatalf("LVM itself finds no physical volume on %s: %s", device, shown)
	}
	if after := d.MustCapacity(t, class); after != before {
		t.Errorf("the capacity changed from %+v to %+v", before, after)
	}
	now := reallvm.ReadDisks(t).Groups
	if len(now) != len(groups) || now[0].UUID != groups[0].UUID || now[0].Seqno != groups[0].Seqno || now[0].Problem != "" {
		t.Errorf("the groups changed from %+v to %+v", groups, now)
	}
	if found, err := d.Lookup(t.Context(), victim.ID); err != nil || found.UUID != victim.UUID {
		t.Errorf("a volume is %+v, %v", found, err)
	}
	spec := b.Light("next", 4*lvm.MiB)
	spec.Class.Group = class.Group
	if v := d.MustCreate(t, spec); string(v.Group) != b.Group || v.ID.VG != victim.ID.VG {
		t.Errorf("the next volume is in %s: %+v", v.Group, v)
	} else {
		d.MustRemove(t, v)
	}
	checkNotInReport(t, device)
}

// checkNotInReport checks LVM's report as a starting driver requests it.
func checkNotInReport(t *testing.T, device string) {
	t.Helper()
	dir := t.TempDir()
	other := reallvm.NewDriver(t, dir, func(c *lvm.Config) { c.LockDir = "" })
	hosttest.Must(t, other.Start(t.Context()))
	defer other.Stop(t)
	i := slices.IndexFunc(other.Commands(), func(c lvm.Command) bool { return c.Name == "fullreport" })
	if i < 0 {
		t.Fatal("no command requested LVM's report")
	}
	args := other.Commands()[i].Args
	if at := slices.Index(args, "--devices"); at < 0 || slices.Contains(strings.Split(args[at+1], ","), device) {
		t.Errorf("LVM may scan %s: %q", device, args)
	}
	cmd := exec.CommandContext(t.Context(), "lvm", append([]string{"fullreport"}, args...)...)
	cmd.Env = append(os.Environ(), "LVM_SYSTEM_DIR="+filepath.Join(dir, "etc"))
	if report := reallvm.Output(t, cmd); !strings.Contains(report, reallvm.Group) || strings.Contains(report, forgedGroup) || strings.Contains(report, "stolen") {
		t.Errorf("LVM's report:\n%s", report)
	}
}
