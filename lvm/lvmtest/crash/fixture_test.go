//go:build reallvm

package crash

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/wait"
)

// crash is the test of one operation.
type crash struct {
	t      *testing.T
	b      hosttest.Fixture
	op     crashOp
	dir    string // the drivers' files
	disks  []string
	victim *victim
	n      int       // the number of the case, part of names
	size   lvm.Bytes // the size to extend to, or of a volume to wipe; 0: the usual one

	used    func() time.Duration // ends what crashOp.use began; nil: nothing did
	longest time.Duration        // the longest wait of it in all cases
}

// crashGroup has two disks: more would repeat the same writes in each commit.
const crashGroup = "nodelvm-crash"

// crashDisks creates disks for a separate group, and keeps udev from starting processes for each change of a device.
func crashDisks(t testing.TB) []string {
	t.Helper()
	clearCrash(t) // left by a run that was killed
	reallvm.ForgetDisks()
	reallvm.DisableUdevRules(t, true)
	t.Cleanup(func() {
		clearCrash(t)
		reallvm.ForgetDisks()
		reallvm.RemoveUdevRules()
	})
	return []string{reallvm.MakeDisk(t, "crash0", 256), reallvm.MakeDisk(t, "crash1", 256)}
}

// clearCrash removes the group and its devices, in any state.
func clearCrash(t testing.TB) {
	t.Helper()
	defer func() { hosttest.Must(t, os.RemoveAll("/dev/"+crashGroup)) }()
	g, there := reallvm.FindGroup(reallvm.ReadDisks(t), crashGroup)
	if !there {
		return
	}
	lowerAll(t, g)
	reallvm.Admin(t, "vgremove", "-ff", "-y", crashGroup)
}

// lowerAll removes all devices of a group, in any state. udev may open one for a moment.
func lowerAll(t testing.TB, g lvm.Group) {
	t.Helper()
	for deadline := time.Now().Add(wait.Limit(10 * time.Second)); ; time.Sleep(50 * time.Millisecond) {
		var words []byte
		for range 4 { // upper devices first
			for _, device := range devicesOf(t, g) {
				uuid, _ := os.ReadFile("/sys/class/block/" + filepath.Base(device) + "/dm/uuid") // a name below /dev may be stale
				words, _ = exec.CommandContext(context.Background(), "dmsetup", "remove", "--noudevsync", "-u", strings.TrimSpace(string(uuid))).CombinedOutput()
			}
		}
		left := devicesOf(t, g)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("cannot remove the devices %v: %s", left, words)
		}
	}
}

func newCrash(t *testing.T, op crashOp, disks []string) *crash {
	c := &crash{t: t, op: op, dir: t.TempDir(), disks: disks}
	c.makeFixture()
	t.Cleanup(func() { c.victim.end() })
	c.setUp()
	return c
}

// makeFixture creates the group again. Its admin uses the driver's configuration, which makes commands faster.
func (c *crash) makeFixture() {
	clearCrash(c.t)
	reallvm.Admin(c.t, append([]string{"vgcreate", "-y", "-s", "4m", crashGroup}, c.disks...)...)
	c.b = hosttest.Fixture{Group: crashGroup, Read: reallvm.ReadDisks, Suspended: reallvm.IsSuspended}
	c.b.Start = func(t testing.TB) *hosttest.Driver { return reallvm.StartDriver(t, c.dir) }
	c.b.Admin = func(t testing.TB, argv ...string) {
		t.Helper()
		cmd := exec.CommandContext(context.Background(), "lvm", append([]string{argv[0], "--devices", strings.Join(c.disks, ",")}, argv[1:]...)...)
		cmd.Env = append(os.Environ(), "LVM_SYSTEM_DIR="+filepath.Join(c.dir, "etc"))
		reallvm.Output(t, cmd)
	}
	c.b = c.b.OneAtATime()
}

func (c *crash) name() string { return fmt.Sprintf("crash-%d", c.n) }

// driver returns a driver that has not been started.
func (c *crash) driver() *hosttest.Driver {
	t := c.t
	d := reallvm.NewDriver(t, c.dir, func(*lvm.Config) {})
	t.Cleanup(func() { d.Stop(t) })
	return d
}

func (c *crash) setUp() {
	if c.op.setUp != nil {
		d := c.driver()
		c.op.setUp(c, d)
		d.Stop(c.t)
	}
}

// cutPower leaves what a power cut leaves of a group: what is on the disks.
func (c *crash) cutPower() {
	c.victim.end()
	lowerAll(c.t, c.b.ReadGroup(c.t))
}

// tearDown deletes everything and checks that nothing is left.
func (c *crash) tearDown() {
	d := c.b.Start(c.t)
	c.b.DeleteAll(c.t, d)
	d.Stop(c.t)
	if c.op.name == "pool create" {
		c.b.Admin(c.t, "lvremove", "-y", c.b.Group+"/lvol0")
	}
	g := c.b.ReadGroup(c.t)
	if slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Name == lvm.DefaultPool }) {
		c.b.RemovePool(c.t)
		g = c.b.ReadGroup(c.t)
	}
	for _, lv := range g.LVs {
		c.t.Errorf("left: %s %v", lv.Name, lv.Tags)
	}
	if left := devicesOf(c.t, g); len(left) > 0 {
		c.t.Errorf("left in the kernel: %v", left)
	}
}

// restart keeps a failure from affecting later cases.
func (c *crash) restart() {
	c.victim.end()
	c.victim = nil
	c.endUse()
	c.makeFixture()
	c.setUp()
}

// left describes the disks and the kernel right after the kill.
func (c *crash) left() string {
	g := c.b.ReadGroup(c.t)
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
	for _, device := range c.suspended() {
		words = append(words, device+" is suspended")
	}
	return strings.Join(words, ", ")
}

// suspended lists the suspended devices of the group.
func (c *crash) suspended() []string {
	return slices.DeleteFunc(devicesOf(c.t, c.b.ReadGroup(c.t)), func(device string) bool { return !c.b.Suspended(c.t, device) })
}

// devicesOf lists a group's devices, with hidden layers.
func devicesOf(t testing.TB, g lvm.Group) []string {
	t.Helper()
	uuids, err := filepath.Glob("/sys/block/dm-*/dm/uuid")
	hosttest.Must(t, err)
	var devices []string
	for _, path := range uuids {
		uuid, err := os.ReadFile(path)
		if err == nil && strings.HasPrefix(string(uuid), lvmtest.DeviceUUID(string(g.UUID), "")) {
			devices = append(devices, "/dev/"+strings.Split(path, "/")[3])
		}
	}
	return devices
}
