//go:build reallvm

package crash

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestKill_RealLVM kills a driver while it creates and deletes volumes, many times, and its LVM commands with it: it runs in
// a separate PID namespace, as in a container. After the next start no unfinished volume is left, no device is suspended, and
// the existing volumes work.
func TestKill_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	dir := t.TempDir()
	for round := range killRounds(t) {
		killed := killVictim(t, dir, time.Duration(930*round%5000)*time.Millisecond)
		d := b.Start(t)
		d.WaitWiped(t)
		m := hosttest.Report(d.Host)
		if hosttest.InState(m, lvm.StateCreating) != 0 {
			t.Errorf("round %d: unfinished volumes are left: %+v", round, m)
		}
		volumes := d.Volumes(t)
		for _, v := range volumes {
			reallvm.Leaks(t, d.MustActivate(t, v), v) // it can be read
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
		}
		d.WaitWiped(t)
		t.Logf("round %d: %d volumes were ready; %s", round, len(volumes), killed)
		if left := reallvm.Admin(t, "lvs", "--noheadings", "-o", "lv_name,lv_tags", reallvm.Group); left != "" {
			t.Errorf("round %d: left: %s\n%s", round, left, killed)
		}
		if suspended := reallvm.Dmsetup(t, "info", "-c", "--noheadings", "-S", "suspended=1", "-o", "name"); suspended != "" && suspended != "No devices found" {
			t.Errorf("round %d: suspended: %s", round, suspended)
		}
		d.Stop(t)
	}
}

// killVictim runs TestKillVictim, kills it some time after it has started to work, and returns its last output.
func killVictim(t testing.TB, dir string, after time.Duration) string {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillVictim$")
	child.Env = append(os.Environ(), "NODELVM_TEST_VICTIM="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, err := child.StdoutPipe()
	hosttest.Must(t, err)
	hosttest.Must(t, child.Start())
	lines := bufio.NewScanner(out)
	lines.Scan()
	time.AfterFunc(after, func() { _ = child.Process.Kill() })
	last := lines.Text()
	for lines.Scan() {
		last = lines.Text()
	}
	hosttest.Must(t, lines.Err())
	_ = child.Wait() // it was killed
	return last
}

func killRounds(t testing.TB) int {
	n := 5
	if s := os.Getenv("NODELVM_TEST_KILLS"); s != "" {
		_, err := fmt.Sscan(s, &n)
		hosttest.Must(t, err)
	}
	return n
}

// TestKillVictim is the driver that TestKill_RealLVM kills.
func TestKillVictim(t *testing.T) {
	dir := os.Getenv("NODELVM_TEST_VICTIM")
	if dir == "" {
		return // it runs only as part of the other test
	}
	d := reallvm.StartDriver(t, filepath.Join(dir, "victim"))
	b := hosttest.Fixture{Group: reallvm.Group}
	for i := 0; ; i++ {
		fmt.Println("begins volume", i)
		v := d.MustCreate(t, b.Spec(fmt.Sprintf("victim-%d", i), 8*lvm.MiB))
		if i%2 == 0 {
			fmt.Println("deletes volume", i)
			hosttest.Must(t, d.Delete(context.Background(), v.ID))
		}
	}
}
