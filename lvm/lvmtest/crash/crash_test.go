//go:build reallvm

package crash

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestCrash_RealLVM kills a driver, its lvm, or both, at the points of every operation at which something changes permanently.
// If the driver died, another one starts. The request is repeated, and the outcome is the same as without the kill: no device
// is suspended, the written data is there, and after the deletion nothing is left.
//
// NODELVM_TEST_CRASH is how many points of each operation the test tries, spread over all of them: 2 by default, "all" for each
// point and each way to die. NODELVM_TEST_SEED repeats a choice.
func TestCrash_RealLVM(t *testing.T) {
	seed := crashSeed(t)
	t.Logf("NODELVM_TEST_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	disks := crashDisks(t)
	for _, op := range crashOps {
		t.Run(op.name, func(t *testing.T) {
			c := newCrash(t, op, disks)
			points := c.points()
			chosen := choosePoints(t, random, points)
			for _, k := range chosen {
				c.cut(k)
			}
			c.tearDown()
			t.Logf("%s: %d points, %d kills", op.name, len(points), len(chosen))
			if op.use != nil {
				t.Logf("the longest write of a pod took %s", c.longest.Round(time.Millisecond))
			}
		})
	}
}

func crashSeed(t testing.TB) uint64 {
	if s := os.Getenv("NODELVM_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		hosttest.Must(t, err)
		return seed
	}
	return rand.Uint64()
}

// choosePoints takes all ways to die at all points, or one of each of so many equal ranges. lvm alone dies first: then the
// driver gets more requests.
func choosePoints(t testing.TB, random *rand.Rand, points []point) []kill {
	want := 2
	if s := os.Getenv("NODELVM_TEST_CRASH"); s != "" && s != "all" {
		n, err := strconv.Atoi(s)
		hosttest.Must(t, err)
		want = n
	}
	var all, chosen []kill
	for _, who := range []string{killLVM, killBoth, killDriver, killPower} {
		for i, p := range points {
			if slices.Contains(waysToDie(p.name), who) {
				all = append(all, killAt(points, i, who))
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

func killAt(points []point, i int, who string) kill {
	return kill{who: who, point: i + 1, name: points[i].name, nth: countPoints(points[:i+1], points[i].name)}
}

// waysToDie returns which processes may die at a point.
func waysToDie(name string) []string {
	switch {
	case name == ofDriver+"DM_TARGET_MSG": // while volumes are suspended for a group snapshot
		return []string{killDriver, killPower}
	case strings.HasPrefix(name, ofDriver):
		return []string{killDriver}
	case strings.HasSuffix(name, ": start") || strings.HasSuffix(name, ": end"):
		return []string{killLVM, killBoth, killDriver} // lvm ends the same way, wherever the driver dies
	case strings.HasSuffix(name, ": DM_TARGET_MSG"):
		return []string{killLVM, killBoth, killPower} // the pool keeps messages without a device in the kernel, too
	default:
		return []string{killLVM, killBoth}
	}
}

// points runs the operation to its end and lists the points that it passes.
func (c *crash) points() []point {
	c.run(kill{})
	points, _ := c.victim.outcome()
	for i, p := range points {
		c.t.Logf("point %d: %s", i+1, p.name)
	}
	return points
}

// attempts is how often the test tries to reach a point: a command may take one step less if udev was faster.
const attempts = 3

func (c *crash) cut(k kill) {
	outer := c.t
	defer func() { c.t = outer }()
	title := fmt.Sprintf("point %d, %s, %s dies", k.point, strings.ReplaceAll(k.name, "/", " "), k.who)
	if k.after > 0 {
		title += fmt.Sprintf(" after %s", k.after.Round(time.Millisecond))
	}
	passed := outer.Run(title, func(t *testing.T) {
		c.t = t
		for range attempts {
			if c.run(k) {
				return
			}
			k.after /= 8 // the machine is faster now, perhaps many times
		}
		t.Error("the point was not reached")
	})
	if !passed {
		c.t = outer
		c.restart()
	}
}

// run prepares a case, lets the victim run it, and then repeats it with a driver that stays alive. It reports whether the kill
// happened as planned.
func (c *crash) run(k kill) (killed bool) {
	c.n++
	if c.op.prepare != nil {
		d := c.driver()
		c.op.prepare(c, d)
		d.Stop(c.t)
	}
	if c.victim == nil {
		c.victim = startVictim(c.t, filepath.Join(c.dir, "victim"))
	}
	c.victim.aim(k)
	if c.op.use != nil && k.who != killPower { // no pod of the node survives that
		c.used = c.op.use(c)
	}
	number := slices.IndexFunc(crashOps, func(op crashOp) bool { return op.name == c.op.name })
	answer, alive := c.victim.ask(c.t, fmt.Sprintf("%d %d %d", number, c.n, c.size))
	_, killed = c.victim.outcome()
	if killed && k.who != killLVM {
		<-c.victim.dead
		alive = false
	} else if !alive || answer != victimDone {
		c.t.Errorf("the victim, which was not killed, lives: %t; its answer %q:\n%s", alive, answer, c.victim.everythingSaid())
	}
	c.verify(alive, k.who == killPower)
	return killed || k.point == 0
}

// verify repeats the request and checks the outcome; if the victim has died, with a driver that starts.
func (c *crash) verify(alive, power bool) {
	var d *hosttest.Driver
	if alive {
		d = c.driver()
	} else {
		c.t.Logf("left: %s", c.left())
		if power {
			c.cutPower()
		}
		d = c.b.Start(c.t)
		c.victim.end() // its lvm has ended: the new driver waited for it
		c.victim = nil
	}
	c.endUse()
	if !alive {
		c.checkStarted()
		c.checkOthers(d)
	}
	if err := c.op.do(c, d); err != nil {
		c.t.Errorf("the repeated request: %v", err)
		return
	}
	c.op.check(c, d)
	d.Stop(c.t)
}

// endUse checks that no device is suspended, and ends the use of the volumes.
func (c *crash) endUse() {
	for _, device := range c.suspended() {
		c.t.Errorf("%s is suspended", device)
		reallvm.Dmsetup(c.t, "resume", device) // or what uses it never ends
	}
	if c.used == nil {
		return
	}
	waited := c.used()
	c.used, c.longest = nil, max(c.longest, waited)
	c.t.Logf("the longest write of a pod took %s", waited.Round(time.Millisecond))
}

// TestKillWhileWiping_RealLVM kills a driver while it zeroes, at any moment: the next one continues, and no old data is readable
// afterwards. NODELVM_TEST_KILLS is how often: 5 times by default.
func TestKillWhileWiping_RealLVM(t *testing.T) {
	c := newCrash(t, crashOps[len(crashOps)-1], crashDisks(t))
	c.size = 160 * lvm.MiB
	points := c.points()
	first := slices.IndexFunc(points, func(p point) bool { return p.name == ofDriver+"BLKZEROOUT" })
	end := slices.IndexFunc(points, func(p point) bool { return p.name == "lvremove: start" })
	whole := points[end].at.Sub(points[first].at)
	t.Logf("zeroing %s takes %s", c.size, whole.Round(time.Millisecond))
	for range killRounds(t) {
		k := killAt(points, first, killDriver)
		k.after = time.Duration(rand.Int64N(int64(whole))) + 1
		c.cut(k)
	}
	c.tearDown()
}
