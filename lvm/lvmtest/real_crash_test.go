//go:build reallvm && amd64

package lvmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestCrash_RealLVM kills a driver, its lvm, or both, at the points of every operation at which something changes for
// good; starts a driver again and repeats the request: the outcome is the same as without the kill, no device is
// suspended, what was written is there, and after the deletion nothing is left.
//
// NODELVM_TEST_CRASH is how many points of each operation are tried, spread over all of them: 2 by default, "all" for
// each point and each way to die. NODELVM_TEST_SEED repeats a choice.
func TestCrash_RealLVM(t *testing.T) {
	seed := crashSeed(t)
	t.Logf("NODELVM_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	setUpTrace(t)
	for _, op := range crashOps {
		t.Run(op.name, func(t *testing.T) {
			c := &crash{t: t, b: realBed(t).oneAtATime(), op: op}
			c.setUp()
			points := c.points()
			for _, p := range choosePoints(t, random, points) {
				c.cut(p)
			}
			c.tearDown()
		})
	}
}

func crashSeed(t testing.TB) uint64 {
	if s := os.Getenv("NODELVM_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		return seed
	}
	return rand.Uint64()
}

// kill is one way to die at one point.
type kill struct {
	who   string
	point int // from 1
	name  string
}

// choosePoints takes all ways to die at all points, or one of each of as many equal stretches as asked for.
func choosePoints(t testing.TB, random *rand.Rand, points []string) []kill {
	want := 2
	if s := os.Getenv("NODELVM_TEST_CRASH"); s != "" && s != "all" {
		n, err := strconv.Atoi(s)
		must(t, err)
		want = n
	}
	var all, chosen []kill
	for i, name := range points {
		for _, who := range []string{killBoth, killLVM, killDriver} {
			between := strings.HasSuffix(name, ": start") || strings.HasSuffix(name, ": end")
			if who != killDriver || between { // lvm ends alike, wherever in it the driver dies
				all = append(all, kill{who, i + 1, name})
			}
		}
	}
	if os.Getenv("NODELVM_TEST_CRASH") == "all" || want >= len(all) {
		return all
	}
	for i := range want {
		first, end := i*len(all)/want, (i+1)*len(all)/want
		chosen = append(chosen, all[first+random.IntN(end-first)])
	}
	return chosen
}

// crash is the work on one operation.
type crash struct {
	t     *testing.T
	b     Bed
	op    crashOp
	n     int           // the case; goes into names
	size  lvm.Bytes     // what an extension is to reach; the size of a volume that is to be wiped, if not the usual one
	until time.Duration // the victim is killed then, wherever it is
}

// patience is how long the victim may take.
func (c *crash) patience() time.Duration {
	if c.until > 0 {
		return c.until
	}
	return 5 * time.Minute
}

func (c *crash) name() string { return fmt.Sprintf("crash-%d", c.n) }

func (c *crash) setUp() {
	if c.op.setUp != nil {
		d := c.b.Start(c.t)
		c.op.setUp(c, d)
		d.close(c.t)
	}
}

// tearDown deletes everything and sees that nothing is left.
func (c *crash) tearDown() {
	d := c.b.Start(c.t)
	c.b.deleteAll(c.t, d)
	g := c.b.group(c.t)
	if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == lvm.DefaultPool }) {
		c.b.removePool(c.t)
		g = c.b.group(c.t)
	}
	for _, lv := range g.LVs {
		c.t.Errorf("left behind: %s %v", lv.Name, lv.Tags)
	}
	if left := devicesOf(c.t, g); len(left) > 0 {
		c.t.Errorf("left in the kernel: %v", left)
	}
}

// points lets the operation run to its end and lists the points that it passes.
func (c *crash) points() []string {
	c.run(kill{who: killLVM})
	log, err := os.ReadFile(traceLog)
	must(c.t, err)
	points := strings.Split(strings.TrimSuffix(string(log), "\n"), "\n")
	c.t.Logf("%d points", len(points))
	return points
}

func (c *crash) cut(k kill) {
	c.t.Run(fmt.Sprintf("%s dies at point %d, %s", k.who, k.point, strings.ReplaceAll(k.name, "/", " ")), func(t *testing.T) {
		outer := c.t
		c.t = t
		defer func() { c.t = outer }()
		c.run(k)
	})
}

// run prepares a case, lets the victim do it, and then does it again with a driver that nobody kills.
func (c *crash) run(k kill) {
	c.n++
	if c.op.prepare != nil {
		d := c.b.Start(c.t)
		c.op.prepare(c, d)
		d.close(c.t)
	}
	must(c.t, os.RemoveAll(traceLog))
	must(c.t, os.WriteFile(tracePlan, fmt.Appendf(nil, "%s %d", k.who, k.point), 0o600))
	words := c.victim()
	if k.point == 0 && !strings.Contains(words, victimDone) {
		c.t.Fatalf("without a kill the victim says: %s", words)
	}
	c.t.Logf("left: %s", c.left())
	d := c.b.Start(c.t)
	for _, device := range devicesOf(c.t, c.b.group(c.t)) {
		if c.b.Suspended(c.t, device) {
			c.t.Errorf("after the start %s is suspended", device)
		}
	}
	if err := c.op.do(c, d); err != nil {
		c.t.Errorf("the request again: %v\nthe victim said: %s", err, words)
		return
	}
	c.op.check(c, d)
	d.close(c.t)
}

// TestWipeKilled_RealLVM kills a driver while it wipes: the next one goes on, and nothing can be read afterwards.
func TestWipeKilled_RealLVM(t *testing.T) {
	setUpTrace(t)
	wipe := crashOps[len(crashOps)-1]
	c := &crash{t: t, b: realBed(t).oneAtATime(), op: wipe, size: 160 * lvm.MiB}
	must(t, os.WriteFile(tracePlan, []byte(killLVM+" 0"), 0o600))
	for _, until := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
		c.n++
		c.until = until
		d := c.b.Start(t)
		c.makeVictim(d)
		d.close(t)
		words := c.victim()
		t.Logf("killed after %s: left: %s", until, c.left())
		d = c.b.Start(t)
		if err := c.remove(d); err != nil {
			t.Errorf("%v\nthe victim said: %s", err, words)
		}
		c.checkRemoved(d)
		d.close(t)
	}
	c.tearDown()
}

// left says what the disks and the kernel show right after the kill.
func (c *crash) left() string {
	g := c.b.group(c.t)
	var words []string
	for _, lv := range g.LVs {
		if !lv.Hidden {
			i := slices.IndexFunc(lv.Tags, func(tag string) bool { return strings.HasPrefix(tag, "nodelvm.state=") })
			state := "no state"
			if i >= 0 {
				state = strings.TrimPrefix(lv.Tags[i], "nodelvm.state=")
			}
			words = append(words, fmt.Sprintf("%s (%s, %d extents)", lv.Name, state, lv.Extents))
		}
	}
	for _, device := range devicesOf(c.t, g) {
		if c.b.Suspended(c.t, device) {
			words = append(words, device+" is suspended")
		}
	}
	return strings.Join(words, ", ")
}

// devicesOf lists a group's devices, hidden layers too.
func devicesOf(t testing.TB, g lvm.Group) []string {
	t.Helper()
	uuids, err := filepath.Glob("/sys/block/dm-*/dm/uuid")
	must(t, err)
	var devices []string
	for _, path := range uuids {
		uuid, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(uuid), deviceUUID(g.UUID, "")) {
			devices = append(devices, "/dev/"+strings.Split(path, "/")[3])
		}
	}
	return devices
}

// setUpTrace lays out what the victim puts in lvm's place.
func setUpTrace(t testing.TB) {
	t.Helper()
	must(t, os.MkdirAll(traceDir, 0o700))
	t.Cleanup(func() { must(t, os.RemoveAll(traceDir)) })
	for from, to := range map[string]string{"/usr/sbin/lvm": realLVM, "/proc/self/exe": traceDir + "/tracer"} {
		in, err := os.Open(from)
		must(t, err)
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
		must(t, err)
		_, err = io.Copy(out, in)
		must(t, err)
		must(t, out.Close())
		must(t, in.Close())
	}
}

// victim does the operation in a process of its own that sees the tracer in lvm's place, and returns what it said.
func (c *crash) victim() string {
	ctx, cancel := context.WithTimeout(c.t.Context(), c.patience())
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestCrashVictim$")
	child.Env = append(os.Environ(), fmt.Sprintf("NODELVM_TEST_VICTIM=%s %d %d", strings.ReplaceAll(c.op.name, " ", "-"), c.n, c.size))
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	child.WaitDelay = time.Second // an lvm that goes on without its driver holds our pipe
	_ = child.Run()               // it was killed, or not: what is left decides
	if ctx.Err() != nil && c.until == 0 {
		c.t.Fatalf("the victim hangs:\n%s", out.String())
	}
	return out.String()
}

const victimDone = "the victim is done"

// TestCrashVictim is the driver that TestCrash_RealLVM kills. If only its lvm is killed, it tries again.
func TestCrashVictim(t *testing.T) {
	var name string
	c := &crash{t: t}
	if n, _ := fmt.Sscan(os.Getenv("NODELVM_TEST_VICTIM"), &name, &c.n, &c.size); n != 3 {
		return // it is only a part of the other test
	}
	must(t, unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount(traceDir+"/tracer", "/usr/sbin/lvm", "", unix.MS_BIND, ""))
	c.b = Bed{Group: realGroup, Read: readDisks}
	for _, op := range crashOps {
		if strings.ReplaceAll(op.name, " ", "-") == name {
			c.op = op
		}
	}
	d := startReal(t, t.TempDir())
	for range 3 {
		err := c.op.do(c, d)
		if err == nil {
			fmt.Println(victimDone)
			break
		}
		fmt.Println(err)
	}
	d.close(t)
}
