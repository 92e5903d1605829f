package lvmcmd

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestHostNameOfCommandOnly: only what runs under another host name sees it.
func TestHostNameOfCommandOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a UTS namespace of its own needs root: run the tests as root")
	}
	before, err := os.Hostname()
	fixture.Must(t, err)
	for range 20 { // the process's first thread may be among those that run it
		var name []byte
		fixture.Must(t, withHostname(poolHost, func() (err error) {
			name, err = exec.CommandContext(t.Context(), "uname", "-n").Output()
			return err
		}))
		if strings.TrimSpace(string(name)) != poolHost {
			t.Fatalf("uname says %q", name)
		}
		if now, err := os.Hostname(); err != nil || now != before {
			t.Fatalf("the test's own host name became %q, %v", now, err)
		}
		first, err := os.Readlink("/proc/self/ns/uts")
		fixture.Must(t, err)
		if own, err := os.Readlink("/proc/thread-self/ns/uts"); err != nil || own != first {
			t.Fatalf("a thread is in another namespace: %s, %s, %v", first, own, err)
		}
	}
}

func TestMakesPool(t *testing.T) {
	g := fixture.TestGroup("vg", []lvm.Run{{Start: 0, Count: 9}})
	pool, err := TargetOf("vg", "thin-pool")
	fixture.Must(t, err)
	if !makesPool(poolArgs(pool, &alloc.PoolGrowth{Name: "thin-pool", Group: g, First: 1, Metadata: 1, Chunk: alloc.PoolChunk})) {
		t.Error("a pool's creation is not recognised")
	}
	for _, argv := range [][]string{extendArgs(pool, g, 5, nil), ReportArgs([]string{"/dev/sda"}), {"lvcreate", "--type"}} {
		if makesPool(argv) {
			t.Errorf("%q makes no pool", argv)
		}
	}
}
