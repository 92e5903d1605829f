//go:build innode

package innode

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nodelvm/nodelvm/lvm"
)

// nvme4k are the disks with logical blocks of 4096 bytes on which a volume of each layout fits.
var nvme4k = []string{"nvme-4k-a", "nvme-4k-b", "nvme-4k-c", "nvme-4k-d", "nvme-4k-e"}

// sizes are those of the volumes of TestHardwareSectors, by what is on them.
var sizes = map[string]int64{"ext4": 64 * mebibyte, "btrfs": 256 * mebibyte, "xfs": 320 * mebibyte, "raw": 32 * mebibyte, "ext4, encrypted": 96 * mebibyte}

// TestHardwareSectors: on disks with logical blocks of 4096 bytes, a volume of each layout with each file system is created, mounted, expanded
// while a pod uses it, and mounted again; of three layouts an encrypted and a raw one, too. The volumes of a layout do this at the same time.
func TestHardwareSectors(t *testing.T) {
	const group = "vg-4k"
	hardwareGroup(t, group, nvme4k...)
	for _, layout := range []string{"linear", "striped", "raid1", "raid5", "raid6", "raid10", "thin"} {
		t.Run(layout, func(t *testing.T) {
			kinds := []string{"ext4", "btrfs", "xfs"}
			if slices.Contains([]string{"linear", "raid5", "thin"}, layout) {
				kinds = append(kinds, "raw", "ext4, encrypted")
			}
			capacity := connect(t).capacity(t, onDisks("", group, 0, "layout", layout).Parameters)
			t.Run("volumes", func(t *testing.T) {
				for _, kind := range kinds {
					t.Run(kind, func(t *testing.T) {
						t.Parallel()
						onSectors(t, group, layout, kind)
					})
				}
			})
			row{
				Case: "logical blocks of 4096 bytes: " + layout, Pod: "works, also after an expansion and a restart: " + strings.Join(kinds, "; "),
				Capacity: mib(capacity),
			}.print(t, nil)
		})
	}
}

// onSectors creates, mounts, expands and mounts again one volume.
func onSectors(t *testing.T, group, layout, kind string) {
	c, size := connect(t), sizes[kind]
	request := onDisks("sectors "+layout+" "+kind, group, size, "layout", layout)
	fsType, more, _ := strings.Cut(kind, ", ")
	capability, secret := mountCapability(fsType), map[string]string(nil)
	if kind == "raw" {
		capability = blockCapability()
	}
	request.VolumeCapabilities = []*csi.VolumeCapability{capability}
	if more == "encrypted" {
		encrypted(request)
		secret = newSecret(t)
	}
	pod := c.opened(t, c.create(t, request), capability, secret)
	device := pod.target
	if kind != "raw" {
		must(t, writes(pod.file("text"), "before"))
		device = sourceOf(t, pod.target)
	}
	if sector := output(t, "blockdev", "--getss", device); sector != "4096" {
		t.Errorf("%s has sectors of %s bytes", device, sector)
	}
	must(t, pod.grow(t, size+64*mebibyte, secret))
	if kind == "raw" {
		if bytes := output(t, "blockdev", "--getsize64", device); bytes != fmt.Sprint(size+64*mebibyte) {
			t.Errorf("the raw volume has %s bytes", bytes)
		}
		return
	}
	holds(t, pod.target, size+64*mebibyte)
	must(t, pod.restart(t, secret))
	reads(t, pod.file("text"), "before")
	holds(t, pod.target, size+64*mebibyte)
}

// TestHardwareMixedSectors: an admin has put disks with logical blocks of 512 and of 4096 bytes into one group. No volume is on both, also not
// after an expansion, the capacity is that of one kind, and a condition names the group and its disks.
func TestHardwareMixedSectors(t *testing.T) {
	const group = "vg-mixed"
	small, large := []string{"nvme-b", "nvme-c"}, "nvme-4k-c"
	hardwareGroup(t, group, append(small, large)...)
	c := connect(t)
	largest := func() int64 {
		reply, err := c.GetCapacity(t.Context(), &csi.GetCapacityRequest{Parameters: onDisks("", group, 0).Parameters})
		must(t, err)
		return reply.GetMaximumVolumeSize().GetValue()
	}
	whole := largest()
	if two := int64(2 * 1020 * mebibyte); whole != two {
		t.Errorf("the largest volume is %s, and the two disks of one kind have %s", mib(whole), mib(two))
	}
	message := ""
	for _, layout := range []string{"striped", "raid1"} { // only two disks of one kind can have them
		oneSectorSize(t, group, c.create(t, onDisks("mixed "+layout, group, 32*mebibyte, "layout", layout)))
		message = awaitCondition(t, lvm.ConditionMixedBlockSizes, group, nil) // from the first volume on
	}
	// The first volume fills the disks of one kind but for 64 MiB, so the second one is on the other kind.
	most := largest()
	first := c.create(t, onDisks("mixed-1", group, most-64*mebibyte))
	second := c.create(t, onDisks("mixed-2", group, 512*mebibyte))
	oneSectorSize(t, group, first)
	oneSectorSize(t, group, second)
	if err := c.expand(t, first, most+128*mebibyte); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.OutOfRange {
		t.Errorf("an expansion that needs disks of both kinds: %v", err)
	}
	must(t, c.expand(t, first, most-32*mebibyte))
	oneSectorSize(t, group, first)
	row{
		Case: "a group of disks with logical blocks of 512 and 4096 bytes", Pod: "each volume is on disks of one kind, also after an expansion",
		Capacity: "largest volume " + mib(whole) + ", of one kind of disks", Condition: string(lvm.ConditionMixedBlockSizes), Message: message,
	}.print(t, map[string]string{diskOf(t, small[0]): "SMALL", diskOf(t, small[1]): "SMALL", diskOf(t, large): "LARGE"})
}

// oneSectorSize fails the test if a volume is on disks with logical blocks of two sizes.
func oneSectorSize(t *testing.T, group string, v *csi.Volume) {
	t.Helper()
	below := map[string][]string{} // by logical volume: what its segments are on
	for line := range strings.Lines(output(t, realLVM, "lvs", "-a", "--noheadings", "-o", "lv_name,devices", group)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		name := strings.Trim(fields[0], "[]")
		for part := range strings.SplitSeq(fields[1], ",") {
			device, _, _ := strings.Cut(part, "(")
			below[name] = append(below[name], device)
		}
	}
	disks := map[string][]string{} // by the size of their sectors
	var visit func(name string)
	visit = func(name string) {
		for _, part := range below[name] {
			if !strings.HasPrefix(part, "/dev/") {
				visit(part)
				continue
			}
			size := output(t, "blockdev", "--getss", part)
			disks[size] = append(disks[size], part)
		}
	}
	visit(filepath.Base(v.GetVolumeId()))
	if len(disks) != 1 {
		t.Errorf("%s is on disks with sectors of %v bytes", v.GetVolumeId(), disks)
	}
}
