//go:build innode

package innode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

var background = context.Background()

// lvNames is volumes for clean-ups, where t.Context has ended.
func lvNames(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(background, realLVM, "lvs", "--noheadings", "-o", "lv_name").Output()
	must(t, err)
	return strings.Fields(string(out))
}

// activeDevice finds a volume's device the way an admin does.
func (c client) activeDevice(t *testing.T, v *csi.Volume) string {
	t.Helper()
	path := output(t, realLVM, "lvs", "--noheadings", "-o", "lv_dm_path", "--select", "lv_name="+filepath.Base(v.GetVolumeId()))
	var device string
	eventually(t, time.Minute, path+" exists", func() (ok bool) { // udev creates it, some time after the volume is active
		var err error
		device, err = filepath.EvalSymlinks(path)
		return err == nil
	})
	return device
}

func TestMemoryWithFiftyVolumes(t *testing.T) {
	c := connect(t)
	var requests []*csi.CreateVolumeRequest
	for i := range 50 {
		requests = append(requests, createRequest(fmt.Sprintf("fifty-%d", i), 8*mebibyte, with("wipe", "none")))
	}
	c.createAll(t, requests...)
	reply, err := c.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	must(t, err)
	if n := len(reply.GetEntries()); n != 50 {
		t.Fatalf("ListVolumes shows %d volumes, want 50", n)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", driverPID))
	must(t, err)
	var resident int
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &resident); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("resident memory with 50 volumes: %.1f MiB", float64(resident)/1024)
	if resident == 0 || resident > 40*1024 {
		t.Errorf("resident memory is %d KiB, want at most 40 MiB", resident)
	}
}
