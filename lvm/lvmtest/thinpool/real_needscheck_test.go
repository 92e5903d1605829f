//go:build reallvm

package thinpool

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestRealPoolNeedsCheck: the kernel asks for a check of a pool after a commit that failed, for example because a disk with a part of the pool's data
// was pulled. A pool whose metadata thin_check finds sound takes writes again as soon as the driver activates it.
func TestRealPoolNeedsCheck(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Thin("v", 16*lvm.MiB, lvm.ID{}))
	writeTo(t, d, v, lvm.MiB)
	d = b.Start(t) // no volume waits for its ready tag
	pool := strings.ReplaceAll(b.Group, "-", "--") + "-" + strings.ReplaceAll(lvm.DefaultPool, "-", "--")
	data := reallvm.Tool(t, "dmsetup", "table", pool+"_tdata")
	replace := func(table string) {
		t.Helper()
		reallvm.Tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", pool+"_tdata")
		defer reallvm.Tool(t, "dmsetup", "resume", "--noudevsync", pool+"_tdata")
		load := exec.CommandContext(t.Context(), "dmsetup", "load", pool+"_tdata")
		load.Stdin = strings.NewReader(table)
		reallvm.Output(t, load)
	}
	needsCheck := func() bool {
		t.Helper()
		return strings.Contains(reallvm.Tool(t, "dmsetup", "status", pool+"-tpool"), "needs_check")
	}

	var failing strings.Builder // the target error takes a flush
	for line := range strings.Lines(data) {
		failing.WriteString(strings.Replace(strings.TrimSpace(line), " linear ", " flakey ", 1) + " 0 60 1 error_writes\n")
	}
	replace(failing.String())
	f, err := os.OpenFile(d.MustActivate(t, v), os.O_WRONLY|unix.O_DIRECT, 0)
	hosttest.Must(t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte("nodelvm "), 1<<10), 8<<20)
	err = errors.Join(err, f.Sync(), f.Close())
	if !needsCheck() {
		t.Fatalf("a commit of the pool did not fail without its disk; a write and a flush of its volume returned %v", err)
	}
	replace(data)
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+v.ID.LV)
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+lvm.DefaultPool)
	d.MustActivate(t, v)
	if needsCheck() {
		t.Error("the pool still needs a check, and takes no writes")
	}
	if found := d.Conditions(t); len(found) > 0 {
		t.Errorf("conditions %+v", found)
	}
	writeTo(t, d, v, 12*lvm.MiB)
	b.DeleteAll(t, d)
}
