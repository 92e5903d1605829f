package dm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

// targetsRoom is far above the list of all targets: Linux 6.12 has some 40, of 40 bytes or less each.
const targetsRoom = 16 << 10

// TargetStates asks device-mapper which targets the kernel has, and looks for the files of the other modules. A container may lack
// /lib/modules: then the kernel itself tries to load the module from the host's.
func (k Kernel) TargetStates(names []string, load bool) (map[string]lvm.TargetState, error) {
	present, err := k.targets()
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
		case (load || !modules.HasFiles()) && k.loadTarget(name) == nil:
			states[name] = lvm.TargetPresent
		case modules.IsLoadable("dm-" + name):
			states[name] = lvm.TargetLoadable
		default:
			states[name] = lvm.TargetMissing
		}
	}
	return states, nil
}

// targets asks DM_LIST_VERSIONS for the names of the kernel's targets (Linux, include/uapi/linux/dm-ioctl.h).
func (k Kernel) targets() (map[string]bool, error) {
	var request struct {
		unix.DmIoctl
		room [targetsRoom]byte
	}
	if err := k.askControl(unix.DM_LIST_VERSIONS, &request.DmIoctl, unsafe.Sizeof(request)); err != nil {
		return nil, fmt.Errorf("cannot list the device-mapper targets: %w", err)
	}
	if request.Flags&unix.DM_BUFFER_FULL_FLAG != 0 {
		return nil, fmt.Errorf("the list of device-mapper targets is longer than %d bytes", targetsRoom)
	}
	answer := unsafe.Slice((*byte)(unsafe.Pointer(&request)), unsafe.Sizeof(request))
	return targetNames(answer, request.Data_start)
}

// loadTarget asks DM_GET_TARGET_VERSION, for which the kernel loads the module of an absent target as it does for a new device. Linux
// before 5.4 does not know the request.
func (k Kernel) loadTarget(name string) error {
	var request struct {
		unix.DmIoctl
		room [statusRoom]byte
	}
	if len(name) >= len(request.Name) {
		return errors.New("the name is too long")
	}
	copy(request.Name[:], name)
	return k.askControl(unix.DM_GET_TARGET_VERSION, &request.DmIoctl, unsafe.Sizeof(request))
}

// askControl sends a request, with room for the answer after it, that is about no device.
func (k Kernel) askControl(what uintptr, request *unix.DmIoctl, size uintptr) error {
	control, err := os.OpenFile(filepath.Join(k.Dev, "mapper/control"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	request.Version = [3]uint32{4, 0, 0}
	request.Data_size, request.Data_start = uint32(size), uint32(unsafe.Sizeof(unix.DmIoctl{}))
	return ioctl(control, what, unsafe.Pointer(request))
}

// targetVersion is the head of struct dm_target_versions: the offset of the next one, and three numbers. The name follows.
const targetVersion = 4 + 3*4

// targetNames parses the kernel's list, at start.
func targetNames(answer []byte, start uint32) (map[string]bool, error) {
	names := map[string]bool{}
	for at := int64(start); ; {
		if at < 0 || at+targetVersion >= int64(len(answer)) {
			return nil, fmt.Errorf("device-mapper's list of targets has no entry at byte %d of %d", at, len(answer))
		}
		name, ended := cutNUL(answer[at+targetVersion:])
		if !ended {
			return nil, fmt.Errorf("device-mapper's list of targets is truncated in the name at byte %d", at)
		}
		names[name] = true
		next := int64(binary.NativeEndian.Uint32(answer[at:]))
		if next == 0 {
			return names, nil
		}
		at += next
	}
}
