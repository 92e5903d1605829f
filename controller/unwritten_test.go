package controller

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// TestShowsUnwritten: raw devices, and file systems that could show unwritten blocks after a power cut.
func TestShowsUnwritten(t *testing.T) {
	mount := func(flags ...string) *csi.VolumeCapability {
		return &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}}}
	}
	block := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	for _, test := range []struct {
		capabilities []*csi.VolumeCapability
		mkfs         string
		want         bool
	}{
		{nil, "", false},
		{[]*csi.VolumeCapability{mount()}, "", false},
		{[]*csi.VolumeCapability{mount("noatime", "data=ordered")}, "-O 64bit,extent -i 65536", false},
		{[]*csi.VolumeCapability{block}, "", true},
		{[]*csi.VolumeCapability{mount(), block}, "", true},
		{[]*csi.VolumeCapability{mount("noatime", "data=writeback")}, "", true},
		{[]*csi.VolumeCapability{mount("noatime,barrier=0")}, "", true},
		{[]*csi.VolumeCapability{mount("nobarrier")}, "", true},
		{[]*csi.VolumeCapability{mount()}, "-i 65536 -O ^has_journal", true},
		{[]*csi.VolumeCapability{mount()}, "-O 64bit,^extent", true},
	} {
		if got := showsUnwritten(test.capabilities, test.mkfs); got != test.want {
			t.Errorf("%v, %q: %t", test.capabilities, test.mkfs, got)
		}
	}
}
