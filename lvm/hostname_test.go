package lvm

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestAsHost: what runs under another host name finds it, and nobody else does.
func TestAsHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("a UTS namespace of its own needs root: run the tests as root")
	}
	before, err := os.Hostname()
	must(t, err)
	for range 20 { // the process's first thread may be among those that are asked
		var name []byte
		must(t, asHost(poolHost, func() (err error) {
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
		must(t, err)
		if own, err := os.Readlink("/proc/thread-self/ns/uts"); err != nil || own != first {
			t.Fatalf("a thread is in another namespace: %s, %s, %v", first, own, err)
		}
	}
}

func TestMakesPool(t *testing.T) {
	g := testGroup("vg", []Run{{0, 9}})
	pool, err := targetOf("vg", "thin-pool")
	must(t, err)
	if !makesPool(poolArgs(pool, &poolGrowth{name: "thin-pool", group: g, first: 1, metadata: 1, chunk: poolChunk})) {
		t.Error("a pool's creation is not recognised")
	}
	for _, argv := range [][]string{extendArgs(pool, g, 5, nil), reportArgs([]string{"/dev/sda"}), {"lvcreate", "--type"}} {
		if makesPool(argv) {
			t.Errorf("%q makes no pool", argv)
		}
	}
}
