//go:build e2e

package lab

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// TestHardwareNode: a node on emulated hardware has two processors and its disks, loses and gets them, survives a power cut, and leaves nothing.
func TestHardwareNode(t *testing.T) {
	l := openSmall(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Minute)
	defer cancel()
	must(t, l.Up(ctx, UpOptions{Nodes: 1, Hardware: true, Progress: os.Stdout}))
	if len(leftovers(t, l)) == 0 {
		t.Fatal("a running lab cannot be seen: this test looks in the wrong places")
	}
	sees := func(want bool, parts ...string) {
		t.Helper()
		var seen string
		if !wait.Holds(wait.Limit(2*time.Minute), func() bool {
			var out strings.Builder
			_, err := l.Exec(ctx, "node-1", nil, &out, &out, "lsblk", "-dnro", "SERIAL,LOG-SEC,TRAN")
			must(t, err)
			seen = out.String()
			return strings.Contains(seen, strings.Join(parts, " ")) == want
		}) {
			t.Errorf("that the node has %q is not %v: %s", parts, want, seen)
		}
	}
	if err := l.run(ctx, "node-1", "sh", "-c", "[ $(nproc) = 2 ]"); err != nil {
		t.Errorf("the node has not two processors: %v", err)
	}
	sees(true, "nvme-a", "512", "nvme")
	sees(true, "nvme-4k-a", "4096", "nvme")
	for _, disk := range []string{"nvme-a", "scsi-a"} {
		must(t, l.ActOnDisk(ctx, "pull", "node-1", disk))
		sees(false, disk, "512")
		must(t, l.ActOnDisk(ctx, "return", "node-1", disk))
		sees(true, disk, "512")
	}
	reads := func(disk string) error {
		return l.run(ctx, "node-1", "sh", "-c", `exec dd if=$(lsblk -dnrpo NAME,SERIAL | awk -v s="$1" '$2 == s { print $1 }') of=/dev/null bs=4k count=1 iflag=direct`, "sh", disk)
	}
	must(t, l.ActOnDisk(ctx, "fail", "node-1", "nvme-4k-a"))
	if err := reads("nvme-4k-a"); err == nil || !strings.Contains(err.Error(), "error reading") {
		t.Errorf("a disk that fails: %v", err)
	}
	must(t, l.ActOnDisk(ctx, "repair", "node-1", "nvme-4k-a"))
	must(t, reads("nvme-4k-a"))

	order := func() string {
		var out strings.Builder
		_, err := l.Exec(ctx, "node-1", nil, &out, &out, "sh", "-c", "lsblk -dnro NAME,SERIAL | sort | grep nvme-4k")
		must(t, err)
		return out.String()
	}
	first := order()
	must(t, l.run(ctx, "node-1", "sh", "-c", "echo kept >/root/kept && sync && touch /run/lost"))
	must(t, l.PowerCut("node-1"))
	must(t, l.Boot(ctx, "node-1"))
	must(t, l.run(ctx, "node-1", "sh", "-c", "grep kept /root/kept && ! [ -e /run/lost ]"))
	if second := order(); second == first {
		t.Errorf("the disks have the same names after the second boot:\n%s", second)
	}
	must(t, l.Down(ctx))
	if left := leftovers(t, l); len(left) > 0 {
		t.Errorf("left after Down:\n%s", strings.Join(left, "\n"))
	}
}

// TestHardwareNodeInterruptedUp: Down removes all that an Up of a node on emulated hardware leaves that was killed.
func TestHardwareNodeInterruptedUp(t *testing.T) {
	interruptUp(t, []time.Duration{250, 1000, 4000}, "--hardware", "--nodes", "1")
}
