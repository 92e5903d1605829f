//go:build innode

package innode

import (
	"encoding/json"
	"net/http"
	"os"
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
func ask(t *testing.T, classes map[string]map[string]string) report.Node {
	t.Helper()
	page := readPage(t, classes)
	if len(page.Unknown) > 0 {
		t.Fatalf("the status page: %q", page.Unknown)
	}
	return page
}

// readPage is ask, but for what the page says is unknown.
func readPage(t *testing.T, classes map[string]map[string]string) (page report.Node) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+report.Path+"?"+report.Query(classes).Encode(), nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	must(t, json.NewDecoder(answer.Body).Decode(&page))
	return page
}

// group is one group of the page; it fails the test unless there is exactly one of that name.
func group(t *testing.T, page report.Node, name string) report.Group {
	t.Helper()
	found := slices.DeleteFunc(slices.Clone(page.Groups), func(g report.Group) bool { return string(g.Name) != name })
	if len(found) != 1 {
		t.Fatalf("%d groups %s on the page: %+v", len(found), name, page.Groups)
	}
	return found[0]
}

// during runs a command, and another one when the test ends.
func during(t *testing.T, begin, end []string) {
	t.Helper()
	must(t, command(begin[0], begin[1:]...))
	t.Cleanup(func() { must(t, command(end[0], end[1:]...)) })
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
	if page.Node != nodeName || page.NotReady != "" || page.MetadataDifference != "" || len(page.Conditions) > 0 || len(page.Damaged) > 0 {
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
		must(t, command("modprobe", "-r", "dm-raid"))
		if module("dm-raid") != report.ModuleAvailable {
			t.Errorf("not loaded, it is %s", module("dm-raid"))
		}
		empty := filepath.Join(work, "no-modules")
		must(t, os.MkdirAll(empty, 0o700))
		c := connect(t)
		hasCapacity := func() bool {
			reply, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: sanityClasses["raid1"]})
			must(t, err)
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
	must(t, os.MkdirAll(filepath.Join(kubelet, "pods"), 0o750))
	during(t, []string{"mount", "--bind", kubelet, kubelet}, []string{"umount", kubelet})
	for _, how := range []report.Propagation{report.PropagationPrivate, report.PropagationShared} {
		must(t, command("mount", "--make-"+string(how), kubelet))
		if k := ask(t, nil).Checks.Kubelet; k.Propagation != how || k.Mount != kubelet || !k.Used {
			t.Errorf("%s: %+v", how, k)
		}
	}
	if state := ask(t, nil).Checks.Registration.State; state != report.RegistrationElsewhere {
		t.Errorf("registration is %s, and the driver runs with --kubelet-registration=false", state)
	}
}
