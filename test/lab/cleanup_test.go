//go:build e2e

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// openSmall returns a separate lab for this test, and stops it when the test ends.
func openSmall(t *testing.T) *Lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "lab")
	must(t, err)
	l, err := Open(dir)
	must(t, err)
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return l
}

// leftovers lists what is left of l on the machine. It reads /proc, not the lab's own records.
func leftovers(t *testing.T, l *Lab) []string {
	t.Helper()
	var found []string
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range lines {
		if b, err := os.ReadFile(file); err == nil && bytes.Contains(b, []byte(l.dir+"/")) {
			found = append(found, "process "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	for _, table := range []string{"/proc/mounts", "/proc/net/dev"} {
		b, err := os.ReadFile(table)
		must(t, err)
		for line := range strings.Lines(string(b)) {
			if strings.Contains(line, l.dir) || strings.Contains(line, l.netns) || strings.Contains(line, "tap1:") {
				found = append(found, table+": "+line)
			}
		}
	}
	if _, err := os.Stat("/run/netns/" + l.netns); err == nil {
		found = append(found, "network namespace "+l.netns)
	}
	entries, err := os.ReadDir(l.dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != "share" {
			found = append(found, "file "+e.Name())
		}
	}
	return found
}

func TestNodeLifecycleLeavesNothing(t *testing.T) {
	l := openSmall(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	must(t, l.Up(ctx, UpOptions{Nodes: 1, Progress: os.Stdout}))
	if len(leftovers(t, l)) == 0 {
		t.Fatal("a running lab cannot be seen: this test looks in the wrong places")
	}
	t.Run("priority", func(t *testing.T) { testPriority(t, l) })
	t.Run("clock", func(t *testing.T) { testClock(ctx, t, l) })
	t.Run("exec", func(t *testing.T) { testExec(ctx, t, l) })
	t.Run("zeroed blocks become holes", func(t *testing.T) { testSparse(ctx, t, l) })
	t.Run("out of memory", func(t *testing.T) { testOutOfMemory(ctx, t, l) })
	t.Run("kernel panic", func(t *testing.T) { testPanic(ctx, t, l) })
	t.Run("power cut", func(t *testing.T) { testPowerCut(ctx, t, l) })
	t.Run("replaced", func(t *testing.T) { testReplace(ctx, t, l) })
	must(t, l.Down(ctx))
	if left := leftovers(t, l); len(left) > 0 {
		t.Errorf("left after Down:\n%s", strings.Join(left, "\n"))
	}
	if err := l.Down(ctx); err != nil {
		t.Errorf("a second Down: %v", err)
	}
}

// testPriority: a node's session has the nice value of this process. Parts of the test suite run with different ones.
func testPriority(t *testing.T, l *Lab) {
	nice, err := niceValue()
	must(t, err)
	leader, found := l.recorded("node-1")
	text, err := os.ReadFile(autogroupFile(leader.pid))
	if errors.Is(err, fs.ErrNotExist) && found && l.alive("node-1") {
		return // this kernel has no autogroups
	}
	if want := fmt.Sprintf(" nice %d\n", nice); err != nil || !strings.HasSuffix(string(text), want) {
		t.Errorf("the node's autogroup is %q, %v, want%s", text, err, want)
	}
}

// testClock: a node's processes read the clock without a system call, and see the kernel's time.
func testClock(ctx context.Context, t *testing.T, l *Lab) {
	var out strings.Builder
	for begin := time.Now(); ; out.Reset() { // the program needs a second for its first correction
		code, err := l.Exec(ctx, "node-1", nil, &out, &out, "/mnt/lab/.lab/clock", "check")
		if err == nil && code == 0 {
			t.Log(out.String())
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("%d, %v\n%s", code, err, out.String())
		}
	}
}

func testExec(ctx context.Context, t *testing.T, l *Lab) {
	var out, errOut strings.Builder
	code, err := l.Exec(ctx, "node-1", strings.NewReader("in"), &out, &errOut, "sh", "-c", `cat; echo " $1" >&2; exit 7`, "sh", `a 'b" $c`)
	if err != nil || code != 7 || out.String() != "in" || errOut.String() != ` a 'b" $c`+"\n" {
		t.Errorf("Exec = %d, %v, out %q, err %q", code, err, out.String(), errOut.String())
	}
	var both strings.Builder
	code, err = l.Exec(ctx, "node-1", nil, &both, &both, "sh", "-c", "for i in $(seq 500); do echo one; echo two >&2; done")
	if lines := strings.Count(both.String(), "one\n") + strings.Count(both.String(), "two\n"); err != nil || code != 0 || lines != 1000 || both.Len() != 4000 {
		t.Errorf("Exec with one writer for both streams = %d, %v, %d lines, %d bytes", code, err, lines, both.Len())
	}
	large := strings.Repeat("0123456789abcdef", 1<<17) // the host sends it in frames larger than the MTU
	out.Reset()
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if code, err := l.Exec(limit, "node-1", strings.NewReader(large), &out, nil, "wc", "-c"); err != nil || code != 0 || strings.TrimSpace(out.String()) != "2097152" {
		t.Errorf("Exec with an input of 2 MiB = %d, %v, %s", code, err, out.String())
	}
	if code, err := l.Exec(ctx, "node-9", nil, nil, nil, "true"); err == nil || code != -1 {
		t.Errorf("Exec on a node that is not there = %d, %v", code, err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if code, err := l.Exec(short, "node-1", nil, nil, nil, "sleep", "97"); err == nil || code != -1 {
		t.Errorf("Exec past its deadline = %d, %v", code, err)
	}
	if err := l.run(ctx, "node-1", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do pgrep -fx 'sleep 97' || exit 0; sleep 0.2; done; exit 1"); err != nil {
		t.Errorf("the command outlives its deadline: %v", err)
	}
}

// testSparse: the file of a node's disk occupies space only for data, not for blocks that the node zeroes.
func testSparse(ctx context.Context, t *testing.T, l *Lab) {
	allocated := func() int64 {
		var stat syscall.Stat_t
		must(t, syscall.Stat(filepath.Join(l.nodeDir(node{index: 1}), "disk1.img"), &stat))
		return stat.Blocks * 512
	}
	const mib = 1 << 20
	must(t, l.run(ctx, "node-1", "dd", "if=/dev/urandom", "of=/dev/ubdb", "bs=1M", "count=64", "oflag=direct", "conv=fsync"))
	if got := allocated(); got < 64*mib {
		t.Errorf("64 MiB of data take %d bytes of the disk's file", got)
	}
	must(t, l.run(ctx, "node-1", "blkdiscard", "--zeroout", "--length", "1G", "/dev/ubdb"))
	if got := allocated(); got > mib {
		t.Errorf("1 GiB of zeroes take %d bytes of the disk's file", got)
	}
	if err := l.run(ctx, "node-1", "cmp", "-n", "1G", "/dev/ubdb", "/dev/zero"); err != nil {
		t.Errorf("what was zeroed does not read as zeroes: %v", err)
	}
}

// testPowerCut: flushed data survives a power cut; the node's memory does not.
func testPowerCut(ctx context.Context, t *testing.T, l *Lab) {
	must(t, l.run(ctx, "node-1", "sh", "-c", "vgcreate vg-test /dev/ubdb && echo kept >/root/kept && sync && touch /run/lost"))
	begin := time.Now()
	must(t, l.PowerCut("node-1"))
	t.Logf("power cut took %s", time.Since(begin))
	if err := l.PowerCut("node-1"); err == nil {
		t.Error("a node without power can be cut off again")
	}
	must(t, l.Boot(ctx, "node-1"))
	if err := l.Boot(ctx, "node-1"); err == nil {
		t.Error("a running node can be booted again")
	}
	if err := l.run(ctx, "node-1", "sh", "-c", "vgs vg-test && grep kept /root/kept && ! [ -e /run/lost ]"); err != nil {
		t.Error(err)
	}
}

// testReplace: a machine that takes a node's place has blank disks, and no file of the former one.
func testReplace(ctx context.Context, t *testing.T, l *Lab) {
	if err := l.Replace(ctx, "node-1"); err == nil {
		t.Error("a running node can be replaced")
	}
	must(t, l.PowerCut("node-1"))
	must(t, l.Replace(ctx, "node-1"))
	if err := l.run(ctx, "node-1", "sh", "-c", "! vgs vg-test && ! [ -e /root/kept ] && cmp -n 64M /dev/ubdb /dev/zero"); err != nil {
		t.Error(err)
	}
}

// TestOrphanedBuildIsEnded: Down kills a build with its children.
func TestOrphanedBuildIsEnded(t *testing.T) {
	l := openSmall(t)
	must(t, l.prepareDirs())
	done := make(chan error, 1)
	go func() { done <- l.tool(t.Context(), "orphan", "sh", "-c", "setsid sleep 98 & sleep 98") }()
	wait.For(t, 30*time.Second, "the build begins", func() bool { return len(sleepers(t)) == 2 })
	must(t, l.Down(t.Context()))
	if err := <-done; err == nil {
		t.Error("the build was not ended")
	}
	if left := sleepers(t); len(left) > 0 {
		t.Errorf("these still sleep: %v", left)
	}
}

// sleepers returns the processes of the build that TestOrphanedBuildIsEnded starts.
func sleepers(t *testing.T) (files []string) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, file := range lines {
		if b, err := os.ReadFile(file); err == nil && string(b) == "sleep\x0098\x00" {
			files = append(files, file)
		}
	}
	return files
}

// TestInterruptedUpIsCleanedUp: Down removes all that an Up leaves that was killed at any moment.
func TestInterruptedUpIsCleanedUp(t *testing.T) {
	interruptUp(t, []time.Duration{20, 60, 120, 250, 500, 1000, 2000}, "--nodes", "2")
}

// interruptUp kills an Up after each of these milliseconds.
func interruptUp(t *testing.T, afterEach []time.Duration, args ...string) {
	t.Helper()
	l := openSmall(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	command := filepath.Join(t.TempDir(), "lab")
	if out, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", command, "../cmd/lab").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, after := range afterEach {
		t.Run(fmt.Sprintf("after %d ms", after), func(t *testing.T) {
			cmd := exec.CommandContext(ctx, command, append([]string{"--dir", l.dir, "up", "--no-kubernetes"}, args...)...)
			must(t, cmd.Start())
			time.Sleep(after * time.Millisecond)
			if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
				t.Logf("up had ended already: %v", err)
			}
			_ = cmd.Wait() // killed, as it should be
			must(t, l.Down(ctx))
			if left := leftovers(t, l); len(left) > 0 {
				t.Errorf("left after Down:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

// outOfMemory lets the kernel write to pages that a process has only read, until the memory cgroup is full. mlockall keeps perl's own
// code out of reclaim: while the kernel can reclaim code that perl needs again at once, it calls no OOM killer, and both are busy for
// minutes or hours.
const outOfMemory = `echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir -p /sys/fs/cgroup/full
echo 32M >/sys/fs/cgroup/full/memory.max
echo $$ >/sys/fs/cgroup/full/cgroup.procs
exec perl -e '
	$| = 1;
	syscall(151, 1) == 0 or die "mlockall: $!"; # MCL_CURRENT
	$pages = 16384;
	$area = syscall(9, 0, $pages * 4096, 3, 0x22, -1, 0); # mmap
	unpack("P1", pack("Q", $area + $_ * 4096)) for 0 .. $pages - 1;
	print "read\n";
	syscall(5, 0, $area + $_ * 4096) for 0 .. $pages - 1; # fstat
	print "the memory sufficed\n";
'`

// testOutOfMemory: the kernel kills the process, and does not panic.
func testOutOfMemory(ctx context.Context, t *testing.T, l *Lab) {
	k, err := l.kernel(ctx)
	must(t, err)
	text, err := os.ReadFile(k.binary)
	must(t, err)
	if _, patched, _, err := findCode(text, patchedMaybeMap); err != nil || patched == nil {
		t.Fatalf("Linux %s is not patched, and panics when memory is short: kernelpatch.go has the machine code of Linux %s: %v", k.version, l.versions["DEBIAN_KERNEL_VERSION"], err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for range 3 {
		var out strings.Builder
		code, err := l.Exec(ctx, "node-1", nil, &out, &out, "sh", "-ec", outOfMemory)
		if code != 128 || err == nil || !strings.Contains(err.Error(), "signal KILL") || out.String() != "read\n" {
			t.Fatalf("Exec = %d, %v, %q; want that the kernel kills the process while it writes", code, err, out.String())
		}
	}
	if err := l.NodeError(); err != nil {
		t.Error(err)
	}
}

// testPanic: a command ends with an error if the node's kernel panics; the node boots again.
func testPanic(ctx context.Context, t *testing.T, l *Lab) {
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	code, err := l.Exec(limit, "node-1", nil, nil, nil, "sh", "-c", "echo c >/proc/sysrq-trigger; sleep 600")
	if code != -1 || err == nil || !strings.Contains(err.Error(), "the kernel of node-1 panicked") || !strings.Contains(err.Error(), "write_sysrq_trigger") {
		t.Errorf("Exec = %d, %v; want the panic and its place in the kernel", code, err)
	}
	must(t, l.Boot(ctx, "node-1"))
}
