package health

import (
	"fmt"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// mostNamed limits the volumes that a text names.
const mostNamed = 5

// checkBlockSizes adds that the group's disks have logical blocks of several sizes. An admin may allow that (lvm.conf,
// devices/allow_mixed_block_sizes).
func (c *groupCheck) checkBlockSizes() {
	sizes := c.group.BlockSizes()
	if len(sizes) < 2 {
		return
	}
	var kinds []string
	for _, size := range sizes {
		var devices []string
		for _, pv := range c.group.PVs {
			if pv.BlockSize == size && !pv.Missing {
				devices = append(devices, pv.Device)
			}
		}
		kinds = append(kinds, fmt.Sprintf("%d bytes (%s)", int64(size), strings.Join(devices, ", ")))
	}
	c.add(lvm.ConditionMixedBlockSizes, lvm.Volume{}, "volume group %s has disks with logical blocks of %s: the driver puts a volume on disks of one size only, so the largest volume is smaller than the free space. Keep each kind of disks in its own group%s",
		c.group.Name, strings.Join(kinds, " and of "), c.volumesOnBoth())
}

// volumesOnBoth names the volumes on disks of several block sizes, and what to do.
func (c *groupCheck) volumesOnBoth() string {
	var names []string
	for _, p := range c.volumes {
		lv := p.lv
		if pool := c.group.FindLV(lv.Pool); lv.Pool != "" && pool != nil && pool.Thin != nil {
			if data := c.group.FindLV(pool.Thin.Data); data != nil {
				lv = *data
			}
		}
		if len(c.group.BlockSizesOf(lv)) > 1 {
			names = append(names, p.lv.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	more := ""
	if len(names) > mostNamed {
		names, more = names[:mostNamed], fmt.Sprintf(" and %d more", len(names)-mostNamed)
	}
	return fmt.Sprintf(". On both are %s%s: if the file system was created for the smaller blocks, it cannot be mounted; move the volume to disks with these (pvmove -n NAME FROM TO)", strings.Join(names, ", "), more)
}
