//go:build innode

package innode

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/report"
)

// ask reads the driver's status page, with what it offers to these classes.
func ask(t *testing.T, classes map[string]map[string]string) (page report.Node) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+report.Path+"?"+report.Query(classes).Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&page); err != nil || len(page.Unknown) > 0 {
		t.Fatalf("the status page: %v, %q", err, page.Unknown)
	}
	return page
}

// group is one group of the page; it fails the test unless there is exactly one of that name.
func group(t *testing.T, page report.Node, name string) report.Group {
	t.Helper()
	found := named(page, name)
	if len(found) != 1 {
		t.Fatalf("%d groups %s on the page: %+v", len(found), name, page.Groups)
	}
	return found[0]
}

// named is the groups of that name.
func named(page report.Node, name string) []report.Group {
	return slices.DeleteFunc(slices.Clone(page.Groups), func(g report.Group) bool { return string(g.Name) != name })
}

// during runs a command, and another one when the test ends.
func during(t *testing.T, begin, end []string) {
	t.Helper()
	if err := command(begin[0], begin[1:]...); err != nil {
		t.Fatal(err)
	}
	if end != nil {
		t.Cleanup(func() {
			if err := command(end[0], end[1:]...); err != nil {
				t.Error(err)
			}
		})
	}
}

// The page reports a sound node as sound, without an LVM process.
func TestStatusPage(t *testing.T) {
	renewDriver(t) // its processes are counted
	c := connect(t)
	thick, thin := c.create(t, createRequest("status-thick", 64<<20)), c.create(t, thinRequest("status-thin", 64<<20))
	defer c.remove(t, thick.GetVolumeId(), thin.GetVolumeId())
	settled(t)
	var page report.Node
	call{"status page", 0, func() error {
		page = ask(t, map[string]map[string]string{"a": {"volumeGroup": "vg-a"}, "fast": {"volumeGroup": "@fast"}})
		return nil
	}}.check(t)
	if page.Node != nodeName || page.NotReady != "" || page.ReaderOff != "" || len(page.Conditions) > 0 || len(page.Damaged) > 0 {
		t.Errorf("the page: %+v", page)
	}
	names := map[string]report.Volume{}
	for _, v := range page.Volumes {
		names[v.ID] = v
	}
	if v := names[thick.GetVolumeId()]; len(names) != 2 || v.Layout != "linear" || v.Size != 64<<20 || v.State != "ready" || v.Used != nil {
		t.Errorf("volumes %+v", names)
	}
	if v := names[thin.GetVolumeId()]; v.Layout != "thin" || v.Pool != "nodelvm-thin" {
		t.Errorf("the thin volume %+v", v)
	}
	for _, class := range page.Classes {
		want := map[string]int{"a": 1, "fast": 2}[class.Name]
		if len(class.Offers) != want || class.Error != "" || class.Offers[0].Largest == 0 {
			t.Errorf("class %+v", class)
		}
	}
	if free := group(t, page, "vg-a").Free; page.Classes[0].Name == "a" && page.Classes[0].Offers[0].Largest != free {
		t.Errorf("a linear volume can have %s of %s", page.Classes[0].Offers[0].Largest, free)
	}
}

// A full pool, and one that does not zero, made by an admin.
func TestStatusThinPools(t *testing.T) {
	during(t, []string{realLVM, "lvcreate", "-qq", "-y", "--type", "thin-pool", "-L", "32M", "-n", "full", "vg-b"}, []string{realLVM, "lvremove", "-qq", "-f", "vg-b/full"})
	during(t, []string{realLVM, "lvcreate", "-qq", "-y", "-V", "48M", "--thinpool", "full", "-n", "filler", "vg-b"}, nil)
	during(t, []string{realLVM, "lvcreate", "-qq", "-y", "--type", "thin-pool", "-L", "32M", "-Zn", "-n", "nozero", "vg-b"}, []string{realLVM, "lvremove", "-qq", "-f", "vg-b/nozero"})
	during(t, []string{"dd", "if=/dev/urandom", "of=/dev/vg-b/filler", "bs=1M", "count=32", "oflag=direct"}, nil)
	eventually(t, time.Minute, "the page tells of the full pool", func() bool { // the kernel's figures are up to a second old
		page := ask(t, map[string]map[string]string{"unsafe": {"volumeGroup": "vg-b", "layout": "thin", "thinPool": "nozero"}})
		pools := group(t, page, "vg-b").Pools
		full := slices.IndexFunc(pools, func(p report.Pool) bool { return p.Name == "full" })
		nozero := slices.IndexFunc(pools, func(p report.Pool) bool { return p.Name == "nozero" })
		if full < 0 || nozero < 0 {
			return false // the page is up to half a second old
		}
		if pools[nozero].Zero || !pools[full].Zero || !strings.Contains(page.Classes[0].Offers[0].Obstacle, "lvchange -Zy vg-b/nozero") {
			t.Fatalf("pools %+v, class %+v", pools, page.Classes)
		}
		return pools[full].State == report.PoolFull && pools[full].Used == pools[full].Size
	})
}

// An lvm that asks a question, and waits for the answer with the group's lock in its hand.
func TestStatusHeldVGLock(t *testing.T) {
	during(t, []string{realLVM, "lvcreate", "-qq", "-y", "-L", "8M", "-n", "asked", "vg-b"}, []string{realLVM, "lvremove", "-qq", "-f", "vg-b/asked"})
	waits := exec.CommandContext(t.Context(), realLVM, "lvremove", "vg-b/asked")
	answer, err := waits.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waits.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the page tells that the lock is held", func() bool {
		page := ask(t, nil)
		return group(t, page, "vg-b").LockHeldSeconds >= 2 && group(t, page, "vg-a").LockHeldSeconds == 0
	})
	if _, err := answer.Write([]byte("n\n")); err != nil {
		t.Fatal(err)
	}
	_ = waits.Wait() // whatever it makes of "no"
	if held := group(t, ask(t, nil), "vg-b").LockHeldSeconds; held != 0 {
		t.Errorf("the lock was given back, and is held for %d s", held)
	}
}

// Two groups of one name: the driver uses neither.
func TestStatusDuplicateVGNames(t *testing.T) {
	for i := range 2 {
		image, device := filepath.Join(images, fmt.Sprintf("twin%d", i)), fmt.Sprintf("/dev/loop%d", 40+i)
		during(t, []string{"truncate", "--size=64M", image}, []string{"rm", image})
		during(t, []string{"losetup", device, image}, []string{"losetup", "--detach", device})
		during(t, []string{realLVM, "vgcreate", "-qq", "--devices", device, "vg-twin", device}, []string{realLVM, "vgremove", "-qq", "-f", "--devices", device, "vg-twin"})
	}
	var page report.Node
	eventually(t, time.Minute, "the page has both groups", func() bool { // each of its parts is up to half a second old
		page = ask(t, map[string]map[string]string{"twins": {"volumeGroup": "vg-twin"}})
		return len(page.Classes[0].Offers) == 2 && len(named(page, "vg-twin")) == 2
	})
	if offers := page.Classes[0].Offers; !strings.Contains(offers[0].Obstacle, "2 volume groups on this node have the name vg-twin") || offers[1].Obstacle == "" {
		t.Errorf("offers %+v", offers)
	}
	for _, g := range page.Groups {
		if (g.Name == "vg-twin") != (g.Problem != "") {
			t.Errorf("group %s: %q", g.Name, g.Problem)
		}
	}
}

// A kernel without a module, and a kubelet's directory that is mounted in one way or another.
func TestStatusNodeSetup(t *testing.T) {
	module := func(name string) report.ModuleState {
		modules := ask(t, nil).Checks.Modules
		return modules[slices.IndexFunc(modules, func(m report.Module) bool { return m.Name == name })].State
	}
	if module("dm-mod") != report.ModuleLoaded || module("dm-raid") == report.ModuleMissing {
		t.Errorf("modules: %+v", ask(t, nil).Checks.Modules)
	}
	t.Run("without the RAID module", func(t *testing.T) {
		if err := command("modprobe", "-r", "dm-raid"); err != nil {
			t.Fatal(err)
		}
		if module("dm-raid") != report.ModuleAvailable {
			t.Errorf("not loaded, it is %s", module("dm-raid"))
		}
		empty := filepath.Join(work, "no-modules")
		if err := os.MkdirAll(empty, 0o700); err != nil {
			t.Fatal(err)
		}
		c := connect(t)
		hasCapacity := func() bool {
			reply, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: sanityClasses["raid1"]})
			if err != nil {
				t.Fatal(err)
			}
			return reply.GetAvailableCapacity() > 0
		}
		eventually(t, 30*time.Second, "capacity for RAID, whose module LVM can load", hasCapacity)
		t.Run("and without its file", func(t *testing.T) {
			during(t, []string{"mount", "--bind", empty, "/lib/modules"}, []string{"umount", "/lib/modules"})
			if module("dm-raid") != report.ModuleMissing || module("dm-mod") != report.ModuleLoaded {
				t.Errorf("modules: %+v", ask(t, nil).Checks.Modules)
			}
			eventually(t, 30*time.Second, "no capacity for RAID", func() bool { return !hasCapacity() })
			request := createRequest("no-raid", 64*mebibyte)
			request.Parameters = sanityClasses["raid1"]
			if _, err := c.CreateVolume(t.Context(), request); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "no module dm-raid") {
				t.Errorf("a RAID volume: %v", err)
			}
		})
		eventually(t, 30*time.Second, "capacity for RAID again", hasCapacity)
	})
	const kubelet = "/var/lib/kubelet"
	if err := os.MkdirAll(filepath.Join(kubelet, "pods"), 0o750); err != nil {
		t.Fatal(err)
	}
	during(t, []string{"mount", "--bind", kubelet, kubelet}, []string{"umount", kubelet})
	for _, how := range []report.Propagation{report.PropagationPrivate, report.PropagationShared} {
		if err := command("mount", "--make-"+string(how), kubelet); err != nil {
			t.Fatal(err)
		}
		if k := ask(t, nil).Checks.Kubelet; k.Propagation != how || k.Mount != kubelet || !k.Used {
			t.Errorf("%s: %+v", how, k)
		}
	}
	if state := ask(t, nil).Checks.Registration.State; state != report.RegistrationElsewhere {
		t.Errorf("registration is %s, and the driver runs with --kubelet-registration=false", state)
	}
}
