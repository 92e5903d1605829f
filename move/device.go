package move

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/nodelvm/nodelvm/lvm"
)

// openMode is how a device is opened (open(2)).
type openMode int

const (
	readShared openMode = syscall.O_RDONLY                  // a snapshot, which nothing writes
	readAlone  openMode = syscall.O_RDONLY | syscall.O_EXCL // a held volume
	writeAlone openMode = syscall.O_RDWR | syscall.O_EXCL   // a receiving one
)

// openVolume opens the device of a volume, which find returns. Its path has a number, and the kernel gives that of a removed device to the next one. An open
// device keeps its number, so find is asked again.
func openVolume(find func() (path string, err error), mode openMode) (*os.File, lvm.Bytes, error) {
	path, err := find()
	if err != nil {
		return nil, 0, err
	}
	file, size, err := openDevice(path, mode)
	if err != nil {
		return nil, 0, err
	}
	again, err := find()
	if err == nil && again != path {
		err = lvm.Errorf(lvm.KindBusy, "%s became the device of another volume; retry", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, size, nil
}

// openDevice opens a volume's device past the page cache, so that a copy evicts no pod's data. With O_EXCL nothing can mount it meanwhile, and
// nothing has it mounted. (What opens it without O_EXCL, such as a pod with a raw volume, is excluded by its state.)
func openDevice(path string, mode openMode) (*os.File, lvm.Bytes, error) {
	file, err := os.OpenFile(path, int(mode)|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) { // a file system without O_DIRECT, in tests
		file, err = os.OpenFile(path, int(mode), 0)
	}
	if errors.Is(err, syscall.EBUSY) {
		return nil, 0, lvm.Errorf(lvm.KindInUse, "%s is in use: %w", path, err)
	}
	if err != nil {
		return nil, 0, lvm.Errorf(lvm.KindInternal, "cannot open a volume: %w", err)
	}
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		_ = file.Close()
		return nil, 0, lvm.Errorf(lvm.KindInternal, "cannot determine the size of %s: %w", path, err)
	}
	return file, lvm.Bytes(size), nil
}

// newBuffer returns a buffer for one chunk, at the beginning of a page: O_DIRECT needs that.
func newBuffer() []byte {
	b, err := syscall.Mmap(-1, 0, int(chunkSize), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(fmt.Sprintf("cannot allocate a buffer of %s: %v", lvm.Bytes(chunkSize), err)) // as make does
	}
	return b
}

func freeBuffer(b []byte) { _ = syscall.Munmap(b[:chunkSize]) }

// yieldToPods gives the I/O of the calling goroutine the lowest priority, where the disk's scheduler knows priorities (ioprio_set(2): IOPRIO_WHO_PROCESS,
// IOPRIO_CLASS_IDLE). The goroutine keeps its thread, which ends with it.
func yieldToPods() {
	runtime.LockOSThread()
	_, _, _ = syscall.Syscall(syscall.SYS_IOPRIO_SET, 1, 0, 3<<13)
}

// readAt fills b.
func readAt(file *os.File, b []byte, at lvm.Bytes) error {
	if _, err := file.ReadAt(b, int64(at)); err != nil {
		return fmt.Errorf("cannot read %s at %d: %w", file.Name(), at, err)
	}
	return nil
}

func writeAt(file *os.File, b []byte, at lvm.Bytes) error {
	if _, err := file.WriteAt(b, int64(at)); err != nil {
		return fmt.Errorf("cannot write %s at %d: %w", file.Name(), at, err)
	}
	return nil
}

// discard frees the blocks of a part of a thin volume (ioctl BLKDISCARD), as far as whole blocks of its pool are in it. Whether that part is zero
// afterwards, the caller reads.
func discard(file *os.File, at, length lvm.Bytes) {
	part := [2]uint64{uint64(at), uint64(length)}
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), blkDiscard, uintptr(unsafe.Pointer(&part)))
}

// blkDiscard is BLKDISCARD (Linux, include/uapi/linux/fs.h).
const blkDiscard = 0x1277
