package dm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control is the path of device-mapper's control device, "/dev/mapper/control". Its methods are the requests of Linux,
// include/uapi/linux/dm-ioctl.h. unix.ENXIO in the chain of an error: the device does not exist.
type Control string

// Key names one device-mapper device. Exactly one field is set; none for a request about no device.
type Key struct {
	UUID   string
	Name   string
	Number uint64 // as in stat's st_rdev
}

// Info is what device-mapper knows of a device.
type Info struct {
	Number    uint64
	UUID      string
	Opens     int32 // by processes, mounts and other devices
	Suspended bool
	Inactive  bool     // it has an inactive table
	Targets   uint32   // of its live table; 0: it has none
	Target    Target   // the first one; from Status and Table
	Below     []uint64 // the numbers of the devices that its live table uses; from Devices
}

// Target is a part of a device's table.
type Target struct {
	Type    string // "raid", "crypt"
	Params  string // its status or its parameters (Linux, Documentation/admin-guide/device-mapper)
	Sectors uint64 // its length
}

const (
	headSize = unsafe.Sizeof(unix.DmIoctl{})
	// targetRoom is far above the longest status, that of a RAID of 64 legs with less than 200 bytes, and the longest dm-crypt table.
	targetRoom = 4 << 10
	// depsRoom is the usual room for a list of devices; it grows.
	depsRoom = 256
	// listRoom is the first room for the list of all devices: that of a thousand volumes.
	listRoom, mostRoom = 128 << 10, 32 << 20
	// versionsRoom is far above the list of all targets: Linux 6.12 has some 40, of 40 bytes or less each.
	versionsRoom = 16 << 10
)

// answer is the buffer of a request, which has the answer afterwards.
type answer struct {
	*unix.DmIoctl
	all []byte
}

// ask sends a request, with room for the answer after its head.
func (c Control) ask(what uintptr, key Key, flags uint32, room int) (answer, error) {
	return c.send(what, key, flags, room, nil)
}

// send is ask for a request with data after its head, for which there is room.
func (c Control) send(what uintptr, key Key, flags uint32, room int, data []byte) (a answer, err error) {
	a, err = newRequest(key, flags, room, data)
	if err != nil {
		return a, err
	}
	failed := c.open(func(control channel) { err = control.send(what, a) })
	return a, errors.Join(failed, err)
}

// channel is the descriptor of the open control device. Requests about many devices share one.
type channel int

// open calls do with the open control device. It does not use package os, which would also ask the kernel for events.
func (c Control) open(do func(channel)) error {
	fd, err := unix.Open(string(c), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: string(c), Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	do(channel(fd))
	return nil
}

// ask sends a request, with more room while the answer has none.
func (c channel) ask(what uintptr, key Key, room int) (answer, error) {
	for {
		a, err := newRequest(key, 0, room, nil)
		if err == nil {
			err = c.send(what, a)
		}
		if !errors.Is(err, errNoRoom) || room >= mostRoom {
			return a, err
		}
		room *= 4
	}
}

var errNoRoom = errors.New("device-mapper's answer is longer than")

func (c channel) send(what uintptr, a answer) error {
	if err := ioctl(uintptr(c), what, unsafe.Pointer(a.DmIoctl)); err != nil {
		return err
	}
	if a.Flags&unix.DM_BUFFER_FULL_FLAG != 0 {
		return fmt.Errorf("%w %d bytes", errNoRoom, uintptr(len(a.all))-headSize)
	}
	return nil
}

// newRequest returns a request with room for the answer after its head.
func newRequest(key Key, flags uint32, room int, data []byte) (answer, error) {
	buffer := make([]uint64, (int(headSize)+room)/8)
	a := answer{(*unix.DmIoctl)(unsafe.Pointer(&buffer[0])), unsafe.Slice((*byte)(unsafe.Pointer(&buffer[0])), len(buffer)*8)}
	a.Version, a.Flags, a.Dev = [3]uint32{4, 0, 0}, flags, key.Number
	a.Data_size, a.Data_start = uint32(len(a.all)), uint32(headSize)
	copy(a.all[headSize:], data)
	if copy(a.Uuid[:len(a.Uuid)-1], key.UUID) < len(key.UUID) || copy(a.Name[:len(a.Name)-1], key.Name) < len(key.Name) {
		return a, fmt.Errorf("%q is too long for device-mapper", key.UUID+key.Name)
	}
	return a, nil
}

func (a answer) info() Info {
	i := Info{Number: a.Dev, Opens: a.Open_count, Suspended: a.Flags&unix.DM_SUSPEND_FLAG != 0, Inactive: a.Flags&unix.DM_INACTIVE_PRESENT_FLAG != 0}
	i.UUID, _ = cutNUL(a.Uuid[:])
	if a.Flags&unix.DM_ACTIVE_PRESENT_FLAG != 0 {
		i.Targets = a.Target_count
	}
	return i
}

// Info returns the state of a device.
func (c Control) Info(key Key) (Info, error) {
	a, err := c.ask(unix.DM_DEV_STATUS, key, 0, 0)
	return a.info(), err
}

// Devices returns the state of all devices: one request lists them, and one asks for each. The kernel answers DM_TABLE_DEPS with the state
// too (Linux, drivers/md/dm-ioctl.c, table_deps).
func (c Control) Devices() (devices []Info, err error) {
	failed := c.open(func(control channel) {
		var list answer
		var numbers []uint64
		if list, err = control.ask(unix.DM_LIST_DEVICES, Key{}, listRoom); err == nil {
			numbers, err = deviceNumbers(list.all, list.Data_start)
		}
		for _, number := range numbers {
			a, gone := control.ask(unix.DM_TABLE_DEPS, Key{Number: number}, depsRoom)
			device := a.info()
			if gone == nil {
				device.Below, gone = parseDeps(a.all, a.Data_start)
			}
			switch {
			case gone == nil:
				devices = append(devices, device)
			case !errors.Is(gone, unix.ENXIO): // else it was removed since
				err = errors.Join(err, gone)
			}
		}
	})
	return devices, errors.Join(failed, err)
}

// Status returns the state of a device with the status of its first target. It does not wait for I/O: a thin pool does not commit
// for the request (DM_NOFLUSH), so that a blocked pool does not block the driver, and the status may be a second old.
func (c Control) Status(key Key) (Info, error) { return c.firstTarget(key, unix.DM_NOFLUSH_FLAG) }

// Table is Status with the parameters of the first target instead of its status. The kernel wipes its copy, which may have a key.
func (c Control) Table(key Key) (Info, error) {
	return c.firstTarget(key, unix.DM_NOFLUSH_FLAG|unix.DM_STATUS_TABLE_FLAG|unix.DM_SECURE_DATA_FLAG)
}

func (c Control) firstTarget(key Key, flags uint32) (Info, error) {
	a, err := c.ask(unix.DM_TABLE_STATUS, key, flags, targetRoom)
	defer clear(a.all)
	i := a.info()
	if err == nil && i.Targets > 0 {
		i.Target, err = parseTarget(a.all, a.Data_start)
	}
	return i, err
}

// Suspend suspends a device, which freezes a file system that is mounted on it; or it resumes the device.
func (c Control) Suspend(key Key, suspend bool) error {
	flags := uint32(0)
	if suspend {
		flags = unix.DM_SUSPEND_FLAG
	}
	_, err := c.ask(unix.DM_DEV_SUSPEND, key, flags, 0)
	return err
}

// messageRoom is far above the longest message, "create_snap 16777215 16777215".
const messageRoom = 256

// Message sends a message to the first target of a device (Linux, Documentation/admin-guide/device-mapper/thin-provisioning.rst). A thin pool
// commits what the message changed before the answer.
func (c Control) Message(key Key, text string) error {
	data := make([]byte, 8, messageRoom) // struct dm_target_msg: the sector, then the text
	data = append(append(data, text...), 0)
	if len(data) > messageRoom {
		return fmt.Errorf("%q is too long for a message", text)
	}
	_, err := c.send(unix.DM_TARGET_MSG, key, 0, messageRoom, data)
	return err
}

// Remove removes a device. unix.EBUSY: it is in use.
func (c Control) Remove(key Key) error {
	_, err := c.ask(unix.DM_DEV_REMOVE, key, 0, 0)
	return err
}

// ClearInactiveTable drops the inactive table of a device.
func (c Control) ClearInactiveTable(key Key) error {
	_, err := c.ask(unix.DM_TABLE_CLEAR, key, 0, 0)
	return err
}

// Targets returns the names of the kernel's targets.
func (c Control) Targets() (map[string]bool, error) {
	a, err := c.ask(unix.DM_LIST_VERSIONS, Key{}, 0, versionsRoom)
	if err != nil {
		return nil, fmt.Errorf("cannot list the device-mapper targets: %w", err)
	}
	return targetNames(a.all, a.Data_start)
}

// LoadTarget asks for the version of a target. For that the kernel loads the module of an absent target, as it does for a new device. Linux
// before 5.4 does not know the request.
func (c Control) LoadTarget(name string) error {
	_, err := c.ask(unix.DM_GET_TARGET_VERSION, Key{Name: name}, 0, targetRoom)
	return err
}

// parseTarget parses the first target in the kernel's answer, at start.
func parseTarget(answer []byte, start uint32) (t Target, err error) {
	head := uint32(unsafe.Sizeof(unix.DmTargetSpec{}))
	kind, length := uint32(unsafe.Offsetof(unix.DmTargetSpec{}.Target_type)), uint32(unsafe.Offsetof(unix.DmTargetSpec{}.Length))
	if int64(start)+int64(head) > int64(len(answer)) {
		return t, fmt.Errorf("device-mapper's answer of %d bytes has no target at byte %d", len(answer), start)
	}
	t.Sectors = binary.NativeEndian.Uint64(answer[start+length:])
	t.Type, _ = cutNUL(answer[start+kind : start+head])
	params, ended := cutNUL(answer[start+head:])
	if t.Params = params; !ended {
		return t, fmt.Errorf("device-mapper's answer of %d bytes is truncated: its parameters have no final NUL", len(answer))
	}
	return t, nil
}

// parseDeps parses struct dm_target_deps, at start: a count, padding, and so many numbers.
func parseDeps(answer []byte, start uint32) (numbers []uint64, err error) {
	at := int64(start)
	if at+8 > int64(len(answer)) {
		return nil, fmt.Errorf("device-mapper's answer of %d bytes has no count at byte %d", len(answer), at)
	}
	count := int64(binary.NativeEndian.Uint32(answer[at:]))
	if at+8+8*count > int64(len(answer)) {
		return nil, fmt.Errorf("device-mapper's answer of %d bytes has no %d numbers at byte %d", len(answer), count, at)
	}
	for i := range count {
		numbers = append(numbers, binary.NativeEndian.Uint64(answer[at+8+8*i:]))
	}
	return numbers, nil
}

// deviceNumbers parses a list of struct dm_name_list, at start: a number, the offset of the next one, and a name. An empty list has one of
// number 0.
func deviceNumbers(answer []byte, start uint32) (numbers []uint64, err error) {
	for at := int64(start); ; {
		if at+12 > int64(len(answer)) {
			return nil, fmt.Errorf("device-mapper's list of devices has no entry at byte %d of %d", at, len(answer))
		}
		if number := binary.NativeEndian.Uint64(answer[at:]); number != 0 {
			numbers = append(numbers, number)
		}
		next := int64(binary.NativeEndian.Uint32(answer[at+8:]))
		if next == 0 {
			return numbers, nil
		}
		at += next
	}
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

func cutNUL(p []byte) (text string, found bool) {
	before, _, found := bytes.Cut(p, []byte{0})
	return string(before), found
}

// ioctl repeats a request that a signal interrupted.
func ioctl(fd, request uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg))
		if errno == 0 {
			return nil
		}
		if !errors.Is(errno, unix.EINTR) {
			return errno
		}
	}
}
