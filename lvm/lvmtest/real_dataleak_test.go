//go:build reallvm

package lvmtest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// fill writes a pattern over the whole device, and flushes it to the disk.
func fill(t testing.TB, device string, size lvm.Bytes) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	block := bytes.Repeat([]byte("somebody's secret "), int(lvm.MiB)/18+1)[:lvm.MiB]
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		_, err := f.Write(block)
		must(t, err)
	}
	must(t, f.Sync())
}

// leaks counts the MiB of a device that are not zero.
func leaks(t testing.TB, device string) int {
	t.Helper()
	f, err := os.Open(device)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	zeroes, block, found := make([]byte, lvm.MiB), make([]byte, lvm.MiB), 0
	for {
		n, err := io.ReadFull(f, block)
		if err == io.EOF {
			return found
		}
		must(t, err)
		if !bytes.Equal(block[:n], zeroes[:n]) {
			found++
		}
	}
}

// TestWipe_RealLVM: the extents of a deleted volume are zero for the next one, unless the class opted out.
func TestWipe_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	for wipe, want := range map[lvm.Wipe]bool{lvm.WipeZero: false, lvm.WipeNone: true} {
		d := b.Start(t)
		spec := b.spec("secret", 100*lvm.MiB)
		spec.Class.Wipe = wipe
		v := d.create(t, spec)
		device, _, err := d.Device(v.ID, v.UUID)
		must(t, err)
		fill(t, device, v.Size)
		before := admin(t, "lvs", "--noheadings", "-o", "seg_pe_ranges", realGroup)
		must(t, d.Delete(t.Context(), v.ID))
		// A restart in between: the next driver resumes the wipe.
		d = b.Start(t)
		d.waitWiped(t)
		v = d.create(t, b.spec("curious", 100*lvm.MiB))
		if after := admin(t, "lvs", "--noheadings", "-o", "seg_pe_ranges", realGroup); after != before {
			t.Fatalf("the test needs the same extents twice: %s and %s", before, after)
		}
		device, _, err = d.Device(v.ID, v.UUID)
		must(t, err)
		if n := leaks(t, device); (n > 0) != want {
			t.Errorf("wipe: %s: %d MiB of the old content are readable", wipe, n)
		}
		must(t, d.Delete(t.Context(), v.ID))
		d.waitWiped(t)
	}
}

// secrets counts the MiB of a device that hold what fill wrote. It ignores RAID's metadata.
func secrets(t testing.TB, device string) int {
	t.Helper()
	f, err := os.Open(device)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	block, found := make([]byte, lvm.MiB), 0
	for {
		n, err := io.ReadFull(f, block)
		if err == io.EOF {
			return found
		}
		must(t, err)
		if bytes.Contains(block[:n], []byte("somebody's secret")) {
			found++
		}
	}
}

// TestDataLeak_RealLVM: no later volume that gets all free extents shows data of a deleted volume, whatever the layout of that
// volume, even if it had been extended, and even if its wipe was interrupted.
func TestDataLeak_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	for _, s := range append(shapes, shape{class: lvm.Class{Layout: lvm.LayoutLinear}, legs: 1, data: 1}) {
		t.Run(s.String(), func(t *testing.T) {
			d := b.Start(t)
			class := b.in(s.class)
			v := d.create(t, lvm.Spec{Name: "secret", Class: class, Required: 4 * s.row()})
			fillVolume(t, d, v)
			v, err := d.Extend(t.Context(), v.ID, v.Size+s.row(), 0)
			must(t, err)
			fillVolume(t, d, v)
			must(t, d.Delete(t.Context(), v.ID))
			d = b.Start(t) // it resumes the wipe
			d.waitWiped(t)
			curious := d.create(t, b.light("curious", d.capacity(t, b.class()).Largest))
			device, err := d.Activate(t.Context(), curious.ID, curious.UUID)
			must(t, err)
			if n := secrets(t, device); n > 0 {
				t.Errorf("%d MiB of the deleted volume can be read", n)
			}
			must(t, d.Delete(t.Context(), curious.ID))
			d.waitWiped(t)
		})
	}
}

// TestThinDataLeak_RealLVM: nor does a later volume of the same pool.
func TestThinDataLeak_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	v := d.create(t, b.thin("secret", 32*lvm.MiB, lvm.ID{}))
	fillVolume(t, d, v)
	v, err := d.Extend(t.Context(), v.ID, v.Size+ExtentSize, 0)
	must(t, err)
	fillVolume(t, d, v)
	must(t, d.Delete(t.Context(), v.ID))
	curious := d.create(t, b.thin("curious", 40*lvm.MiB, lvm.ID{}))
	device, err := d.Activate(t.Context(), curious.ID, curious.UUID)
	must(t, err)
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	must(t, err)
	for at := int64(0); at < int64(curious.Size); at += 64 << 10 { // the pool allocates a block for each
		_, err := f.WriteAt(make([]byte, 4096), at)
		must(t, err)
	}
	must(t, f.Sync())
	must(t, f.Close())
	if n := secrets(t, device); n > 0 {
		t.Errorf("%d MiB of the deleted volume can be read", n)
	}
	b.deleteAll(t, d)
	b.removePool(t)
}

func fillVolume(t testing.TB, d *Driver, v lvm.Volume) {
	t.Helper()
	device, err := d.Activate(t.Context(), v.ID, v.UUID)
	must(t, err)
	fill(t, device, v.Size)
}

// TestNewVolumeHasNoSignature_RealLVM: a new volume shows no signature that was on its extents before.
func TestNewVolumeHasNoSignature_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	spec := b.spec("signed", 128*lvm.MiB)
	spec.Class.Wipe = lvm.WipeNone
	for _, mkfs := range []string{"mkfs.ext4", "mkfs.btrfs", "mkswap", "true"} { // true: only check what mkswap left
		v := d.create(t, spec)
		device, _, err := d.Device(v.ID, v.UUID)
		must(t, err)
		if out, err := exec.CommandContext(t.Context(), "wipefs", "--noheadings", device).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("a new volume has a signature (%v): %s", err, out)
		}
		if out, err := exec.CommandContext(t.Context(), mkfs, device).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", mkfs, err, out)
		}
		must(t, d.Delete(t.Context(), v.ID))
		d.waitWiped(t)
	}
}

// TestStartResumesManagedDevices_RealLVM: a start resumes suspended devices of managed volumes, and no others.
func TestStartResumesManagedDevices_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	v := d.create(t, b.spec("suspended", 8*lvm.MiB))
	device, _, err := d.Device(v.ID, v.UUID)
	must(t, err)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "foreign", realGroup)
	foreign := strings.ReplaceAll(admin(t, "lvs", "--noheadings", "-o", "lv_uuid", realGroup+"/foreign"), "-", "")
	foreign = deviceUUID(string(v.ID.VG), foreign)
	for _, uuid := range []string{deviceUUID(string(v.ID.VG), v.UUID), foreign} {
		dmsetup(t, "suspend", "-u", uuid)
	}
	b.Start(t)
	if state := dmsetup(t, "info", "-c", "--noheadings", "-o", "suspended", "-u", deviceUUID(string(v.ID.VG), v.UUID)); state != "Active" {
		t.Errorf("the managed volume's device is %s", state)
	}
	if state := dmsetup(t, "info", "-c", "--noheadings", "-o", "suspended", "-u", foreign); state != "Suspended" {
		t.Errorf("the unmanaged volume's device is %s", state)
	}
	dmsetup(t, "resume", "-u", foreign)
	leaks(t, device) // it can be read
}

func dmsetup(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dmsetup", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dmsetup %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestOriginWithSnapshotIsNotDeleted_RealLVM: the driver does not delete a volume with a snapshot: lvremove would remove the snapshot too.
func TestOriginWithSnapshotIsNotDeleted_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	v := d.create(t, b.spec("origin", 16*lvm.MiB))
	b.Admin(t, "lvcreate", "-y", "-s", "-l", "2", "-n", "admins-snapshot", realGroup+"/"+v.ID.LV)
	err := d.Delete(t.Context(), v.ID)
	wantKind(t, "delete of an origin", err, lvm.KindInUse)
	if err != nil && !strings.Contains(err.Error(), "admins-snapshot") {
		t.Errorf("the error does not name the snapshot: %v", err)
	}
	if _, err := d.Lookup(t.Context(), v.ID); err != nil {
		t.Error(err)
	}
	b.Admin(t, "lvremove", "-y", realGroup+"/admins-snapshot")
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}

// TestMissingPV_RealLVM: in a group that lost a disk the driver creates nothing and reports why. Complete volumes still work,
// and no command of the driver makes LVM set the disk's MISSING flag.
func TestMissingPV_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	v := d.create(t, b.spec("whole", 8*lvm.MiB))
	_, err := d.Activate(t.Context(), v.ID, v.UUID) // tags it as ready
	must(t, err)
	pv := admin(t, "lvs", "--noheadings", "-o", "devices", realGroup)
	lost := ""
	for _, disk := range realDisks {
		if !strings.HasPrefix(pv, disk+"(") {
			lost = disk
		}
	}
	label := make([]byte, 4096)
	f, err := os.OpenFile(lost, os.O_RDWR|os.O_SYNC, 0)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	_, err = f.ReadAt(label, 0)
	must(t, err)
	_, err = f.WriteAt(make([]byte, len(label)), 0)
	must(t, err)
	putBack := sync.OnceFunc(func() {
		_, err := f.WriteAt(label, 0)
		must(t, err)
	})
	defer putBack()
	_, err = d.Create(t.Context(), b.spec("more", 8*lvm.MiB))
	wantKind(t, "create in a group that lost a disk", err, lvm.KindInsufficientCapacity)
	if c := d.capacity(t, b.class()); c != (lvm.Capacity{}) {
		t.Errorf("its capacity is %+v", c)
	}
	b.Admin(t, "lvchange", "-an", realGroup+"/"+v.ID.LV)
	if _, err := d.Activate(t.Context(), v.ID, v.UUID); err != nil {
		t.Errorf("a volume on the remaining disk: %v", err)
	}
	wantKind(t, "delete", d.Delete(t.Context(), v.ID), lvm.KindBusy) // LVM's commit would set the MISSING flag
	_, err = d.Lookup(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"})
	wantKind(t, "look up a missing volume", err, lvm.KindBusy)
	putBack()
	if g := b.group(t); !isWhole(g) {
		t.Errorf("with the disk back the group is %+v", g)
	}
	must(t, d.Delete(t.Context(), v.ID))
	d.waitWiped(t)
}
