package dm

import (
	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// TargetStates asks device-mapper which targets the kernel has, and looks for the files of the other modules. A container may lack
// /lib/modules: then the kernel itself tries to load the module from the host's.
func (k Kernel) TargetStates(names []string, load bool) (map[string]lvm.TargetState, error) {
	present, err := k.Control().Targets()
	if err != nil {
		return nil, err
	}
	states := map[string]lvm.TargetState{}
	var absent []string
	for _, name := range names {
		if present[name] {
			states[name] = lvm.TargetPresent
			continue
		}
		absent = append(absent, name)
	}
	if len(absent) == 0 {
		return states, nil
	}
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		return nil, err
	}
	modules, err := Modules{Sys: k.Sys, Dir: "/lib/modules", Release: unix.ByteSliceToString(release.Release[:])}.Read()
	if err != nil {
		return nil, err
	}
	for _, name := range absent {
		switch {
		case (load || !modules.HasFiles()) && k.Control().LoadTarget(name) == nil:
			states[name] = lvm.TargetPresent
		case modules.IsLoadable("dm-" + name):
			states[name] = lvm.TargetLoadable
		default:
			states[name] = lvm.TargetMissing
		}
	}
	return states, nil
}
