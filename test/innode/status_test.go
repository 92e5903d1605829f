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

// ask reads the driver's status page.
func ask(t *testing.T) report.Node {
	t.Helper()
	page := look(t)
	if len(page.Unknown) > 0 {
		t.Fatalf("the status page: %q", page.Unknown)
	}
	return page
}

// look is ask, but for what the page says is unknown: while a disk is missing, the driver may not know all of it.
func look(t *testing.T) (page report.Node) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+health+report.Path, nil)
	must(t, err)
	answer, err := http.DefaultClient.Do(request)
	must(t, err)
	defer func() { _ = answer.Body.Close() }()
	must(t, json.NewDecoder(answer.Body).Decode(&page))
	return page
}

// during runs a command, and another one when the test ends.
func during(t *testing.T, begin, end []string) {
	t.Helper()
	must(t, command(begin[0], begin[1:]...))
	t.Cleanup(func() { must(t, command(end[0], end[1:]...)) })
}

// A kernel without a module, and a kubelet's directory that is mounted in one way or another.
func TestStatusNodeSetup(t *testing.T) {
	module := func(name string) report.ModuleState {
		modules := ask(t).Checks.Modules
		return modules[slices.IndexFunc(modules, func(m report.Module) bool { return m.Name == name })].State
	}
	if module("dm-mod") != report.ModuleLoaded || module("dm-raid") == report.ModuleMissing {
		t.Errorf("modules: %+v", ask(t).Checks.Modules)
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
				t.Errorf("modules: %+v", ask(t).Checks.Modules)
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
		if k := ask(t).Checks.Kubelet; k.Propagation != how || k.Mount != kubelet || !k.Used {
			t.Errorf("%s: %+v", how, k)
		}
	}
	if state := ask(t).Checks.Registration.State; state != report.RegistrationElsewhere {
		t.Errorf("registration is %s, and the driver runs with --kubelet-registration=false", state)
	}
}
