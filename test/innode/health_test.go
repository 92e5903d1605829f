//go:build innode

package innode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// diskWrites returns the numbers of writes that the kernel has counted of the disks of the groups vg-a and vg-b.
func diskWrites(t *testing.T) string {
	t.Helper()
	var counts []string
	const written = 4 // Documentation/block/stat.rst, "write I/Os"
	for _, disk := range blank[:2] {
		text, err := os.ReadFile(filepath.Join("/sys/class/block", filepath.Base(disk), "stat"))
		must(t, err)
		counts = append(counts, strings.Fields(string(text))[written])
	}
	return strings.Join(counts, " ")
}

// TestHealthCalls: each health call answers for a volume in use, starts no process and writes to no disk.
func TestHealthCalls(t *testing.T) {
	renewDriver(t)
	c := connect(t)
	v := c.create(t, createRequest("healthy", 16*mebibyte))
	o := c.opened(t, v, mountCapability("ext4"), nil)
	must(t, command("sync", "--file-system", o.target))
	settled(t)
	before, since := "", time.Now()
	eventually(t, time.Minute, "the file system has written what mkfs left to it", func() bool {
		if now := diskWrites(t); now != before {
			before, since = now, time.Now()
		}
		return time.Since(since) > 6*time.Second // ext4 commits its journal every five
	})
	for _, step := range []call{
		{"ControllerGetVolumeHealth", 0, func() error {
			reply, err := c.ControllerGetVolumeHealth(t.Context(), &csi.ControllerGetVolumeHealthRequest{VolumeId: v.GetVolumeId()})
			if health := reply.GetVolumeHealth(); err == nil && (health.GetVolumeId() != v.GetVolumeId() || len(health.GetHealthStatuses()) > 0) {
				t.Errorf("the Controller says %v", health)
			}
			return err
		}},
		{"ControllerListVolumeHealth", 0, func() error {
			reply, err := c.ControllerListVolumeHealth(t.Context(), &csi.ControllerListVolumeHealthRequest{})
			if len(reply.GetEntries()) > 0 {
				t.Errorf("the list has %v", reply.GetEntries())
			}
			return err
		}},
		{"NodeGetVolumeHealth", 0, func() error {
			reply, err := c.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: v.GetVolumeId()})
			if health := reply.GetVolumeHealth(); err == nil && (health.GetVolumeId() != v.GetVolumeId() || len(health.GetHealthStatuses()) > 0) {
				t.Errorf("the node says %v", health)
			}
			return err
		}},
		{"NodeGetStorageHealth", 0, func() error {
			reply, err := c.NodeGetStorageHealth(t.Context(), &csi.NodeGetStorageHealthRequest{})
			if len(reply.GetBackendHealth()) > 0 {
				t.Errorf("the storage has %v", reply.GetBackendHealth())
			}
			return err
		}},
	} {
		step.check(t)
	}
	if after := diskWrites(t); after != before {
		t.Errorf("the disks have had %s writes, and %s before the calls", after, before)
	}
	must(t, os.WriteFile(filepath.Join(o.target, "file"), []byte("written"), 0o600))
	must(t, command("sync", "--file-system", o.target))
	if after := diskWrites(t); after == before {
		t.Errorf("a write is not counted: %s", after)
	}
}
