//go:build realfs

package node

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDeviceIsOpenForAMoment: the driver writes its mark to a device that another program has open exclusively for a moment. A process that the driver
// has just started is such a program.
func TestDeviceIsOpenForAMoment(t *testing.T) {
	b := newBench(t)
	device := b.volume("moment", 64)
	open, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	b.must(err)
	closed := make(chan error, 1)
	time.AfterFunc(200*time.Millisecond, func() { closed <- open.Close() })
	b.marks["moment"] = 3 * megabytes
	b.must(b.tools.WriteMark(device, b.mark("moment")))
	b.must(<-closed)
	if !b.isMarked("moment") {
		t.Error("the device has no mark")
	}
}
