package lvmcmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// debrisArgs removes what an earlier poolArgs left half made, if it still is what was looked at.
func debrisArgs(t Target, p *alloc.PoolGrowth) []string {
	guard := fmt.Sprintf("%s && lv_uuid=%s && lv_tags={%s}", UnchangedSelection(p.Group), p.Debris.UUID, lvm.EncodeTag(lvm.KeyKind, lvm.TagPool))
	return append(OnDevices("lvremove", p.Group), "-S", guard, "--", t.String())
}

// sparesArgs removes those of the volumes that LVM made when it was about to make its spare, and was killed.
func sparesArgs(p *alloc.PoolGrowth) ([]string, error) {
	var uuids, targets []string
	for _, lv := range p.Spares {
		t, err := TargetOf(p.Group.Name, lv.Name)
		if err != nil {
			return nil, err
		}
		uuids = append(uuids, "lv_uuid="+lv.UUID)
		targets = append(targets, t.String())
	}
	guard := fmt.Sprintf("%s && lv_host=%s && (%s)", UnchangedSelection(p.Group), poolHost, strings.Join(uuids, " || "))
	return append(append(OnDevices("lvremove", p.Group), "-S", guard, "--"), targets...), nil
}

// poolArgs makes a thin pool whose new blocks read as zeroes; when it is full it refuses writes, instead of letting them
// wait (config.go: there is no option for that). LVM takes its spare, the data and the metadata from one run, so that where each lies is known
// beforehand.
func poolArgs(t Target, p *alloc.PoolGrowth) []string {
	args := append(OnDevices("lvcreate", p.Group), "--type", "thin-pool", "-Zy", "--discards", "passdown", "--alloc", "normal",
		"-l", decimal(p.First), "--poolmetadatasize", kib(p.Group.Bytes(p.Metadata)), "-c", kib(p.Chunk), "-n", t.lv)
	args = append(args, AddTags(lvm.PoolTags(p.Cluster))...)
	args = append(args, "--", t.vg)
	return append(args, RangeArgs(p.Home)...)
}

// thinArgs makes and activates an empty thin volume: its pool shows zeroes wherever nothing was written.
func thinArgs(t Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "--type", "thin",
		"-V", strconv.FormatInt(int64(c.Volume.Size), 10)+"b", "--thinpool", c.Volume.Class.Pool, "-n", t.lv)
	args = append(args, AddTags(lvm.VolumeTags(c.Volume))...)
	return append(args, "--", t.vg)
}

// copyArgs makes and activates a thin volume that begins with the content of another one, or of a snapshot. -kn: it may
// be activated like any volume.
func copyArgs(t, origin Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "-kn", "-prw", "-s", "-n", t.lv)
	args = append(args, AddTags(lvm.VolumeTags(c.Volume))...)
	return append(args, "--", origin.String())
}

// snapshotArgs takes a thin snapshot. -an -ky: nothing ever activates it, an admin's vgchange neither; -pr: should
// somebody do so nonetheless, it cannot be written.
func snapshotArgs(t, origin Target, g lvm.Group, sn lvm.Snapshot) []string {
	args := append(OnDevices("lvcreate", g), "-an", "-ky", "-pr", "-s", "-n", t.lv)
	args = append(args, AddTags(lvm.SnapshotTags(sn))...)
	return append(args, "--", origin.String())
}

// DiscardArgs removes a thin volume or snapshot that nobody has used, also if its pool refuses to be told of it: an lvcreate
// that was killed after it had told the pool, and before the pool had noted the transaction, left a pool that does not let
// it be told again ("already contain thin device"). -ff lets LVM go on without, and tell the pool with its next command to
// delete the device of that number.
func DiscardArgs(t Target, g lvm.Group, uuid string) []string {
	return append(OnDevices("lvremove", g), "-ff", "-S", Selection(g, uuid, lvm.StateCreating), "--", t.String())
}

// FlushName is the name of the volume that FlushArgs makes: not one that LvName or SnapshotName makes.
const FlushName = "nodelvm-flush"

// FlushArgs makes a thin volume for the sake of what LVM does before: it sends the pool the messages that a command left, and
// drops them (poolflush.go). -an: of the volume itself nothing is wanted. It bears the tags of a snapshot that was begun, so
// that a start removes it, should this be cut off.
func FlushArgs(g lvm.Group, pool lvm.LV, cluster string) []string {
	args := append(OnDevices("lvcreate", g), "-an", "--type", "thin", "-V", strconv.FormatInt(int64(g.ExtentSize), 10)+"b",
		"--thinpool", pool.Name, "-n", FlushName)
	args = append(args, AddTags(lvm.SnapshotTags(lvm.Snapshot{Name: FlushName, Cluster: cluster, Source: lvm.ID{LV: pool.Name}, State: lvm.StateCreating}))...)
	return append(args, "--", g.Name)
}
