//go:build reallvm

package reallvm

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// Mapped is the device of a device-mapper name. udev creates and removes the names in /dev/mapper with a delay, and may leave
// that of an earlier device with the same name.
func Mapped(t testing.TB, name string) string {
	t.Helper()
	return "/dev/" + Dmsetup(t, "info", "-c", "--noheadings", "-o", "blkdevname", name)
}

// IsSuspended reports whether a device-mapper device is suspended; a removed one is not.
func IsSuspended(t testing.TB, device string) bool {
	state, err := os.ReadFile("/sys/class/block/" + filepath.Base(device) + "/dm/suspended")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return false // removed meanwhile: an lvm of a killed driver still works
	}
	hosttest.Must(t, err)
	return strings.TrimSpace(string(state)) == "1"
}

// TakesNoWrites asks the kernel whether a device is read-only.
func TakesNoWrites(t testing.TB, device string) bool {
	is, err := os.ReadFile("/sys/class/block/" + filepath.Base(device) + "/ro")
	hosttest.Must(t, err)
	return strings.TrimSpace(string(is)) == "1"
}

// write writes blocks of 4 KiB, each flushed by itself.
func write(t testing.TB, device string, count int) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY|os.O_SYNC, 0)
	hosttest.Must(t, err)
	for i := range count {
		_, err := f.WriteAt(make([]byte, 4096), int64(i)*8192)
		hosttest.Must(t, err)
	}
	hosttest.Must(t, f.Close())
}

// Fill writes a pattern over the whole device, and flushes it to the disk.
func Fill(t testing.TB, device string, size lvm.Bytes) {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	hosttest.Must(t, err)
	defer func() { hosttest.Must(t, f.Close()) }()
	block := bytes.Repeat([]byte("a tenant's secret "), int(lvm.MiB)/18+1)[:lvm.MiB]
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		_, err := f.Write(block)
		hosttest.Must(t, err)
	}
	hosttest.Must(t, f.Sync())
}

// FillVolume writes the pattern of Fill over a whole volume.
func FillVolume(t testing.TB, d *hosttest.Driver, v lvm.Volume) {
	t.Helper()
	device := d.MustActivate(t, v)
	Fill(t, device, v.Size)
}

// Leaks counts the MiB of a volume's device that are not zero, but for the volume's format mark.
func Leaks(t testing.TB, device string, v lvm.Volume) int {
	t.Helper()
	mark := lvm.FormatMark(v.UUID)
	f, err := os.Open(device)
	hosttest.Must(t, err)
	defer func() { hosttest.Must(t, f.Close()) }()
	zeroes, block, found := make([]byte, lvm.MiB), make([]byte, lvm.MiB), 0
	for {
		n, err := io.ReadFull(f, block)
		if err == io.EOF {
			return found
		}
		hosttest.Must(t, err)
		if at := bytes.Index(block[:n], mark); v.FormatMark != 0 && at >= 0 {
			clear(block[at : at+len(mark)])
		}
		if !bytes.Equal(block[:n], zeroes[:n]) {
			found++
		}
	}
}

// ReadAt reads a range of a device.
func ReadAt(t testing.TB, device string, at int64, n int) []byte {
	t.Helper()
	f, err := os.Open(device)
	hosttest.Must(t, err)
	defer func() { hosttest.Must(t, f.Close()) }()
	b := make([]byte, n)
	_, err = io.ReadFull(io.NewSectionReader(f, at, int64(n)), b)
	hosttest.Must(t, err)
	return b
}
