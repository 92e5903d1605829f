package node

import (
	"bytes"
	"fmt"

	"github.com/moby/sys/mountinfo"
	"k8s.io/utils/io"
)

const mountTable = "/proc/self/mountinfo"

// wholeMountTable is the kernel that first shows each mount to a reader while others are mounted and unmounted (Linux
// 9f6c61f96f2d, "proc/mounts: add cursor"). Before it, lines can be missing.
var wholeMountTable = kernelVersion{5, 8}

func mountsWhere(wanted func(*mountinfo.Info) bool) ([]*mountinfo.Info, error) {
	mounts, err := readMountTable(mountTable, runningKernel(), func(m *mountinfo.Info) (skip, stop bool) { return !wanted(m), false })
	if err != nil {
		return nil, fmt.Errorf("the mounts of this node cannot be read: %w", err)
	}
	return mounts, nil
}

// readMountTable reads the table again, on a kernel that may leave out lines, until it finds the same twice.
func readMountTable(path string, kernel kernelVersion, filter mountinfo.FilterFunc) ([]*mountinfo.Info, error) {
	const attempts = 20
	if !kernel.before(wholeMountTable) {
		return mountinfo.GetMounts(filter)
	}
	table, err := io.ConsistentRead(path, attempts)
	if err != nil {
		return nil, err
	}
	return mountinfo.GetMountsFromReader(bytes.NewReader(table), filter)
}
