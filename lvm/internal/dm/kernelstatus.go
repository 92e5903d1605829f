package dm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// statusRoom is far above the longest status: that of a RAID of 64 legs has less than 200 bytes.
const statusRoom = 4 << 10

// Status asks DM_TABLE_STATUS (Linux, include/uapi/linux/dm-ioctl.h). With DM_NOFLUSH a thin pool does not commit for the
// request: a status that is up to a second old suffices, and a blocked pool does not block the driver.
func (k Kernel) Status(path string) (target, params string, err error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "", "", fmt.Errorf("cannot read the status of %s: %w", path, err)
	}
	control, err := os.OpenFile(filepath.Join(k.Dev, "mapper/control"), os.O_RDWR, 0)
	if err != nil {
		return "", "", fmt.Errorf("cannot read the status of %s: %w", path, err)
	}
	defer func() { _ = control.Close() }()
	var request struct {
		unix.DmIoctl
		room [statusRoom]byte
	}
	request.Version = [3]uint32{4, 0, 0}
	request.Dev = stat.Rdev
	request.Flags = unix.DM_NOFLUSH_FLAG
	request.Data_size = uint32(unsafe.Sizeof(request))
	request.Data_start = uint32(unsafe.Sizeof(request.DmIoctl))
	if err := ioctl(control, unix.DM_TABLE_STATUS, unsafe.Pointer(&request)); err != nil {
		return "", "", fmt.Errorf("cannot read the status of %s: DM_TABLE_STATUS: %w", path, err)
	}
	if request.Flags&unix.DM_BUFFER_FULL_FLAG != 0 {
		return "", "", fmt.Errorf("the status of %s is longer than %d bytes", path, statusRoom)
	}
	if request.Target_count == 0 {
		return "", "", nil
	}
	return firstTarget(unsafe.Slice((*byte)(unsafe.Pointer(&request)), request.Data_size), request.Data_start)
}

// firstTarget parses the first target in the kernel's answer, at start.
func firstTarget(answer []byte, start uint32) (target, params string, err error) {
	head := uint32(unsafe.Sizeof(unix.DmTargetSpec{}))
	kind := uint32(unsafe.Offsetof(unix.DmTargetSpec{}.Target_type))
	if int64(start)+int64(head) > int64(len(answer)) {
		return "", "", fmt.Errorf("device-mapper's answer of %d bytes has no target at byte %d", len(answer), start)
	}
	target, _ = cutNUL(answer[start+kind : start+head])
	params, ended := cutNUL(answer[start+head:])
	if !ended {
		return "", "", fmt.Errorf("device-mapper's answer of %d bytes is truncated: its parameters have no final NUL", len(answer))
	}
	return target, params, nil
}

func cutNUL(p []byte) (text string, found bool) {
	before, _, found := bytes.Cut(p, []byte{0})
	return string(before), found
}
