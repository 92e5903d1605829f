package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/internal/dm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/report"
)

// modules are the device-mapper modules that layouts need.
var modules = []string{report.ModuleDM, report.ModuleThinPool, report.ModuleRAID, report.ModuleCrypt}

// nodeChecks reads facts about the node that only a process in the driver's container can see.
type nodeChecks struct {
	sys        string // mount point of sysfs
	modules    string // /lib/modules
	mountinfo  string // this process's (proc_pid_mountinfo(5))
	kubeletDir string
	registered func() report.Registration
}

// run reads them now; unknown explains, in sentences, what it cannot read.
func (c nodeChecks) run() (checks report.Checks, unknown []string) {
	checks.Registration = c.registered()
	var release unix.Utsname
	err := unix.Uname(&release)
	checks.Kernel = unix.ByteSliceToString(release.Release[:])
	if err == nil {
		checks.Modules, err = c.moduleStates(checks.Kernel)
	}
	if err != nil {
		unknown = append(unknown, "the kernel's modules: "+err.Error())
	}
	checks.Kubelet, err = c.kubelet()
	if err != nil {
		unknown = append(unknown, "the kubelet's directory: "+err.Error())
	}
	return checks, unknown
}

// moduleStates returns for each module whether the kernel has it, or /lib/modules does.
func (c nodeChecks) moduleStates(release string) ([]report.Module, error) {
	set, err := host.ReadModules(c.sys, c.modules, release)
	if err != nil {
		return nil, err
	}
	var list []report.Module
	for _, name := range modules {
		state := report.ModuleMissing
		if set.IsLoaded(name) {
			state = report.ModuleLoaded
		} else if set.IsLoadable(name) {
			state = report.ModuleAvailable
		}
		list = append(list, report.Module{Name: name, State: state})
	}
	return list, nil
}

// kubelet checks the kubelet's root directory, and its mount.
func (c nodeChecks) kubelet() (report.KubeletDir, error) {
	found := report.KubeletDir{Path: c.kubeletDir, Propagation: report.PropagationUnknown}
	pods := filepath.Join(c.kubeletDir, "pods")
	if info, err := os.Stat(pods); err == nil {
		found.Used = info.IsDir()
	}
	over, err := c.mountOver(c.kubeletDir)
	if err != nil {
		return found, err
	}
	found.Mount, found.Propagation = over.Point, propagation(over.Propagation)
	found.PodsLink = c.badLink(pods)
	return found, nil
}

// mountOver returns the mount that a path is in.
func (c nodeChecks) mountOver(path string) (over dm.Mount, err error) {
	mounts, err := dm.ReadMounts(c.mountinfo)
	if err != nil {
		return over, err
	}
	for _, m := range mounts { // the innermost, and the last of those, which is on top
		if isIn(path, m.Point) && len(m.Point) >= len(over.Point) {
			over = m
		}
	}
	if over.Point == "" {
		return over, fmt.Errorf("%s has no mount for %s", c.mountinfo, path)
	}
	return over, nil
}

// isIn reports whether a path is a folder, or in it.
func isIn(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}

// badLink returns where a symbolic link leads if what this process mounts there does not reach the host; "" if it is none, or good.
func (c nodeChecks) badLink(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return target // the container does not have it
	}
	if over, err := c.mountOver(resolved); err != nil || propagation(over.Propagation) == report.PropagationShared {
		return ""
	}
	return target
}

// mountable returns why no pod with a volume can start on this node; nil: the kubelet has registered the driver, or another program
// does that, and the driver's mounts reach the pods' directory.
func (c nodeChecks) mountable() error {
	switch r := c.registered(); r.State {
	case report.RegistrationWaiting:
		return fmt.Errorf("the kubelet has not registered the driver yet: its root directory (--root-dir) must be %s", c.kubeletDir)
	case report.RegistrationRefused:
		return fmt.Errorf("the kubelet refused the registration of the driver: %s", r.Error)
	case report.RegistrationDone, report.RegistrationElsewhere:
	}
	if target := c.badLink(filepath.Join(c.kubeletDir, "pods")); target != "" {
		return errors.New(report.DescribePodsLink(c.kubeletDir, target))
	}
	return nil
}

// propagation parses the optional fields of a mount: `shared:N`, `master:N`.
func propagation(fields string) report.Propagation {
	switch {
	case strings.Contains(fields, "shared:"):
		return report.PropagationShared
	case strings.Contains(fields, "master:"):
		return report.PropagationSlave
	default:
		return report.PropagationPrivate
	}
}
