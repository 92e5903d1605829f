package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/report"
)

// place writes a file below dir.
func place(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o750))
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func TestModuleStates(t *testing.T) {
	dir := t.TempDir()
	check := nodeChecks{sys: filepath.Join(dir, "sys"), modules: filepath.Join(dir, "modules")}
	states := func() (list []report.ModuleState) {
		found, err := check.moduleStates("6.1")
		must(t, err)
		for i, m := range found {
			if m.Name != modules[i] {
				t.Errorf("module %d is %s", i, m.Name)
			}
			list = append(list, m.State)
		}
		return list
	}
	expect := func(want ...report.ModuleState) {
		t.Helper()
		if got := states(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect(report.ModuleMissing, report.ModuleMissing, report.ModuleMissing, report.ModuleMissing)
	place(t, check.modules, "6.1/modules.builtin", "kernel/drivers/md/dm-mod.ko\n")
	place(t, check.modules, "6.1/modules.dep", "kernel/drivers/md/dm_thin_pool.ko.xz: kernel/drivers/md/dm-bufio.ko.xz\nkernel/drivers/md/dm-crypt.ko:\n")
	place(t, check.modules, "6.1/kernel/drivers/md/dm_thin_pool.ko.xz", "") // the file of dm-crypt is away
	expect(report.ModuleLoaded, report.ModuleAvailable, report.ModuleMissing, report.ModuleMissing)
	place(t, check.sys, "module/dm_raid/refcnt", "0\n")
	expect(report.ModuleLoaded, report.ModuleAvailable, report.ModuleLoaded, report.ModuleMissing)
}

func TestKubeletDir(t *testing.T) {
	kubelet := t.TempDir()
	root := "1 0 0:1 / / rw,relatime - overlay overlay rw\n"
	mounted := func(optional string) string {
		return "2 1 8:1 /var/lib/kubelet " + kubelet + " rw,relatime" + optional + " - ext4 /dev/sda1 rw\n"
	}
	for _, test := range []struct {
		name, mounts string
		want         report.Propagation
		mount        string
	}{
		{"Bidirectional", root + mounted(" shared:7 master:1"), report.PropagationShared, kubelet},
		{"HostToContainer", root + mounted(" master:1"), report.PropagationSlave, kubelet},
		{"None", root + mounted(""), report.PropagationPrivate, kubelet},
		{"not mounted", root, report.PropagationPrivate, "/"},
		{"mounted over", root + mounted(" shared:7") + mounted(""), report.PropagationPrivate, kubelet},
		{"beside a mount with the beginning of its name", root + "2 1 0:9 / " + kubelet[:len(kubelet)-1] + " rw shared:3 - tmpfs tmpfs rw\n", report.PropagationPrivate, "/"},
		{"a pod's own mount within", root + mounted(" shared:7") + "3 2 0:9 / " + kubelet + "/pods/x rw - tmpfs tmpfs rw\n", report.PropagationShared, kubelet},
	} {
		place(t, kubelet, "mountinfo", test.mounts)
		check := nodeChecks{mountinfo: filepath.Join(kubelet, "mountinfo"), kubeletDir: kubelet}
		got, err := check.kubelet()
		if err != nil || got.Propagation != test.want || got.Mount != test.mount || got.Used {
			t.Errorf("%s: %+v, %v", test.name, got, err)
		}
	}
	registered := func() report.Registration {
		return report.Registration{State: report.RegistrationElsewhere}
	}
	elsewhere, pods := t.TempDir(), filepath.Join(kubelet, "pods")
	for _, test := range []struct{ name, target, mounts, want string }{
		{"to a directory that only the host has", "/no/such/pods", root + mounted(" shared:7"), "/no/such/pods"},
		{"to a directory in the container", elsewhere, root + mounted(" shared:7"), elsewhere},
		{"to a directory that is shared with the host", elsewhere, root + mounted(" shared:7") + "3 2 8:1 /pods " + elsewhere + " rw shared:8 - ext4 /dev/sda1 rw\n", ""},
	} {
		place(t, kubelet, "mountinfo", test.mounts)
		must(t, os.Symlink(test.target, pods))
		check := nodeChecks{mountinfo: filepath.Join(kubelet, "mountinfo"), kubeletDir: kubelet, registered: registered}
		if got, err := check.kubelet(); err != nil || got.PodsLink != test.want {
			t.Errorf("pods is a link %s: %+v, %v", test.name, got, err)
		}
		if err := check.mountable(); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), "pods is a symbolic link to "+test.want) {
			t.Errorf("pods is a link %s: the driver says %v", test.name, err)
		}
		must(t, os.Remove(pods))
	}
	place(t, kubelet, "pods/x/volumes", "")
	check := nodeChecks{mountinfo: "/proc/self/mountinfo", kubeletDir: kubelet}
	if got, err := check.kubelet(); err != nil || !got.Used || got.Mount == "" {
		t.Errorf("in use: %+v, %v", got, err)
	}
	check.mountinfo = filepath.Join(kubelet, "none")
	if got, err := check.kubelet(); err == nil || got.Propagation != report.PropagationUnknown {
		t.Errorf("unreadable: %+v, %v", got, err)
	}
}
