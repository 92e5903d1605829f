//go:build reallvm

package operations

import (
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestStartResumesManagedDevices_RealLVM: a start resumes suspended devices of managed volumes, and no others.
func TestStartResumesManagedDevices_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("suspended", 8*lvm.MiB))
	device := d.MustDevice(t, v)
	b.Admin(t, "lvcreate", "-y", "-l", "1", "-n", "foreign", reallvm.Group)
	foreign := strings.ReplaceAll(reallvm.Admin(t, "lvs", "--noheadings", "-o", "lv_uuid", reallvm.Group+"/foreign"), "-", "")
	foreign = lvmtest.DeviceUUID(string(v.ID.VG), foreign)
	d.Stop(t) // its last write to a new volume, the format mark, would wait for the suspended device
	for _, uuid := range []string{lvmtest.DeviceUUID(string(v.ID.VG), v.UUID), foreign} {
		reallvm.Dmsetup(t, "suspend", "-u", uuid)
	}
	b.Start(t)
	if state := reallvm.Dmsetup(t, "info", "-c", "--noheadings", "-o", "suspended", "-u", lvmtest.DeviceUUID(string(v.ID.VG), v.UUID)); state != "Active" {
		t.Errorf("the managed volume's device is %s", state)
	}
	if state := reallvm.Dmsetup(t, "info", "-c", "--noheadings", "-o", "suspended", "-u", foreign); state != "Suspended" {
		t.Errorf("the unmanaged volume's device is %s", state)
	}
	reallvm.Dmsetup(t, "resume", "-u", foreign)
	reallvm.Leaks(t, device, v) // it can be read
}

// TestOriginWithSnapshotIsNotDeleted_RealLVM: the driver does not delete a volume with a snapshot: lvremove would remove the snapshot too.
func TestOriginWithSnapshotIsNotDeleted_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("origin", 16*lvm.MiB))
	b.Admin(t, "lvcreate", "-y", "-s", "-l", "2", "-n", "admins-snapshot", reallvm.Group+"/"+v.ID.LV)
	err := d.Delete(t.Context(), v.ID)
	hosttest.WantKind(t, "delete of an origin", err, lvm.KindInUse)
	if err != nil && !strings.Contains(err.Error(), "admins-snapshot") {
		t.Errorf("the error does not name the snapshot: %v", err)
	}
	if _, err := d.Lookup(t.Context(), v.ID); err != nil {
		t.Error(err)
	}
	b.Admin(t, "lvremove", "-y", reallvm.Group+"/admins-snapshot")
	d.MustRemove(t, v)
}
