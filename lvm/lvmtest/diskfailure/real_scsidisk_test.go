//go:build reallvm

package diskfailure

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// scsiDisk is a disk in memory that can be removed while it is open, as a disk that is pulled (the kernel's scsi_debug).
type scsiDisk struct {
	host   string // its SCSI host in sysfs
	path   string // below /dev; another each time that it is plugged in
	pulled bool
}

// newSCSIDisks creates two disks of 96 MiB, each on its own host. With one store they are two paths to one disk.
func newSCSIDisks(t *testing.T, oneStore bool) []*scsiDisk {
	t.Helper()
	stores := "per_host_store=1"
	if oneStore {
		stores = "per_host_store=0"
	}
	reallvm.Tool(t, "modprobe", "sd_mod")
	reallvm.Tool(t, "modprobe", "scsi_debug", "add_host=2", stores, "dev_size_mb=96", "delay=0")
	t.Cleanup(func() { reallvm.Tool(t, "modprobe", "--remove", "--wait", "20000", "scsi_debug") })
	hosts, err := filepath.Glob("/sys/bus/pseudo/drivers/scsi_debug/adapter*/host*")
	hosttest.Must(t, err)
	if len(hosts) != 2 {
		t.Fatalf("scsi_debug has the hosts %q", hosts)
	}
	disks := make([]*scsiDisk, 0, len(hosts))
	for _, host := range hosts {
		d := &scsiDisk{host: host}
		d.awaitPath(t)
		disks = append(disks, d)
	}
	return disks
}

// awaitPath waits until the disk has a path.
func (d *scsiDisk) awaitPath(t testing.TB) {
	t.Helper()
	wait.For(t, 20*time.Second, "the kernel adds the disk of "+d.host, func() bool {
		found, err := filepath.Glob(filepath.Join(d.host, "target*/*/block/sd*"))
		hosttest.Must(t, err)
		if len(found) != 1 {
			return false
		}
		d.path = "/dev/" + filepath.Base(found[0])
		_, err = os.Stat(d.path)
		return err == nil
	})
}

// pull removes the disk, which the device holder uses. The holder still has a link to the disk, which leads nowhere.
func (d *scsiDisk) pull(t testing.TB, holder string) {
	t.Helper()
	name := filepath.Base(d.path)
	entry := "/sys/class/block/" + name
	setKernel(t, entry+"/device/delete", "1")
	d.pulled = true
	wait.For(t, 20*time.Second, "the kernel removes "+d.path, func() bool {
		_, err := os.Stat(entry)
		return os.IsNotExist(err)
	})
	if _, err := os.Lstat(filepath.Join("/sys/class/block", filepath.Base(holder), "slaves", name)); err != nil {
		t.Fatalf("%s has closed %s, so the test shows nothing: %v", holder, d.path, err)
	}
}

// plug adds the disk again, with its content and another name.
func (d *scsiDisk) plug(t testing.TB) {
	t.Helper()
	former := d.path
	setKernel(t, filepath.Join(d.host, "scsi_host", filepath.Base(d.host), "scan"), "- - -")
	d.pulled = false
	if d.awaitPath(t); d.path == former {
		t.Fatalf("the disk is back under its former name %s, so the test shows nothing", former)
	}
}

// setKernel writes a value to a file of sysfs.
func setKernel(t testing.TB, file string, value any) {
	t.Helper()
	hosttest.Must(t, os.WriteFile(file, []byte(fmt.Sprint(value)), 0o200))
}
