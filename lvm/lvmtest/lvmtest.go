// Package lvmtest stands in for the LVM command and the kernel below an lvm.Host, so that whole services can be tested
// without root and without a disk.
package lvmtest

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// Group is a volume group that a fake node begins with.
type Group struct {
	Name  string
	Tags  []string
	Disks []lvm.Bytes // one physical volume each; rounded down to extents of 4 MiB
}

// NewHost returns a started Host over a fake node with these groups; it is closed when the test ends.
func NewHost(t testing.TB, groups ...Group) *lvm.Host {
	t.Helper()
	host, err := lvm.NewHost(lvm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return host
}
