//go:build reallvm

package lvmtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// realGroup is made anew on the test's disks for each test, and removed at the end.
const realGroup = "nodelvm-test"

// testDisks are the disks that these tests may use up, two or more, separated by commas in NODELVM_TEST_DISKS. A disk
// that holds anything but an earlier run's group fails the test.
func testDisks(t testing.TB) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests work on real disks with the real LVM: run them as root, inside a lab node")
	}
	list := os.Getenv("NODELVM_TEST_DISKS")
	if list == "" {
		t.Fatal("set NODELVM_TEST_DISKS to two blank disks that the test may use up, such as /dev/ubdb,/dev/ubdc in a lab node")
	}
	disks := strings.Split(list, ",")
	admin(t, "vgremove", "-ff", "-y", "-S", "vg_name="+realGroup)
	orphans := strings.Fields(admin(t, "pvs", "--noheadings", "-o", "pv_name", "-S", "vg_name=\"\""))
	for _, disk := range disks {
		if slices.Contains(orphans, disk) {
			admin(t, "pvremove", "-y", disk)
		}
		if out, err := exec.CommandContext(t.Context(), "wipefs", "--noheadings", disk).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%s is not blank (%v): %s", disk, err, out)
		}
	}
	return disks
}

// admin runs the node's own lvm with the node's own configuration, but for udev: these tests also run where it is not.
func admin(t testing.TB, argv ...string) string {
	t.Helper()
	argv = append([]string{argv[0], "--config", "activation { udev_sync=0 udev_rules=0 }"}, argv[1:]...)
	cmd := exec.CommandContext(context.Background(), "lvm", argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("lvm %s: %v: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func realBed(t *testing.T) Bed {
	disks := testDisks(t)
	admin(t, append([]string{"vgcreate", "-y", "-s", "4m", "--addtag", "fast", realGroup}, disks...)...)
	t.Cleanup(func() { admin(t, "vgremove", "-ff", "-y", realGroup) })
	dir := t.TempDir()
	return Bed{
		Group: realGroup,
		Tag:   "fast",
		Start: func(t testing.TB) *Driver { return startReal(t, dir) },
		Admin: func(t testing.TB, argv ...string) { t.Helper(); admin(t, argv...) },
		Hold: func(t testing.TB, device string) func() {
			f, err := os.Open(device)
			must(t, err)
			return func() { must(t, f.Close()) }
		},
	}
}

func startReal(t testing.TB, dir string) *Driver {
	d := &Driver{}
	host, err := lvm.NewHost(lvm.Config{
		SystemDir: filepath.Join(dir, "etc"), LockDir: "/run/lock/lvm", BackupDir: filepath.Join(dir, "backup"),
		Cluster: Cluster, Observe: d.Observe,
	})
	must(t, err)
	d.Host = host
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(t, host.Start(ctx))
	return d
}

func TestConformance_RealLVM(t *testing.T) { Conformance(t, realBed) }
