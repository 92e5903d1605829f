package lvmcmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// debrisArgs removes the incomplete LV of an earlier poolArgs, if it still is the planned one.
func debrisArgs(t Target, p *alloc.PoolGrowth) []string {
	guard := fmt.Sprintf("%s && lv_uuid=%s && lv_tags={%s}", UnchangedSelection(p.Group), p.Debris.UUID, lvm.PoolTag())
	return append(OnDevices("lvremove", p.Group), "-S", guard, "--", t.String())
}

// sparesArgs removes those of the volumes that a killed LVM created to become its spare.
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

// poolArgs creates a thin pool whose new blocks read as zeroes. A full pool fails writes instead of queueing them (no class
// option changes that). LVM allocates its spare, the data and the metadata from one range, so the plan knows where each is.
func poolArgs(t Target, p *alloc.PoolGrowth) []string {
	args := append(OnDevices("lvcreate", p.Group), "--type", "thin-pool", "-Zy", "--discards", "passdown", "--alloc", "normal",
		"-l", decimal(p.First), "--poolmetadatasize", kib(p.Group.Bytes(p.Metadata)), "-c", kib(p.Chunk), "-n", t.lv)
	args = append(args, AddTags(lvm.PoolTags(p.Cluster))...)
	args = append(args, "--", string(t.vg))
	return append(args, RangeArgs(p.Home)...)
}

// thinArgs creates and activates an empty thin volume: unwritten blocks read as zeroes.
func thinArgs(t Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "--type", "thin",
		"-V", strconv.FormatInt(int64(c.Group.Bytes(c.Extents)), 10)+"b")
	args = append(append(args, c.Volume.Class.Options()...), "-n", t.lv)
	args = append(args, AddTags(newVolumeTags(c))...)
	return append(args, "--", string(t.vg))
}

// copyArgs creates and activates a thin volume with the content of a volume or snapshot. -kn: it can be activated like any
// volume.
func copyArgs(t, origin Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "-kn", permission(c.Volume), "-s", "-n", t.lv)
	args = append(args, AddTags(lvm.VolumeTags(c.Volume))...)
	return append(args, "--", origin.String())
}

// permission is LVM's permission of a volume. An encrypted one stays writable for its header, where keys are exchanged: its mapping is read-only.
func permission(v lvm.Volume) string {
	if v.Access == lvm.AccessReadOnly && v.Class.Encryption == lvm.EncryptionNone {
		return "-pr"
	}
	return "-prw"
}

// AccessArgs records the next access of a read-only copy. After the replay of its journal the same commit makes it read-only for the kernel.
func AccessArgs(t Target, g lvm.Group, v lvm.Volume, to lvm.Access) []string {
	args := OnDevices("lvchange", g)
	if !to.NeedsReplay() && v.Class.Encryption == lvm.EncryptionNone { // as copyArgs; LVM refuses to set what it has
		args = append(args, "-pr")
	}
	return append(args, "-S", Selection(g, v.UUID, lvm.StateReady),
		"--deltag", lvm.AccessTag(v.Access), "--addtag", lvm.AccessTag(to), "--", t.String())
}

// snapshotArgs creates a thin snapshot. -an -ky: nothing activates it, not even an admin's vgchange; -pr: read-only, should an
// admin activate it.
func snapshotArgs(t, origin Target, g lvm.Group, sn lvm.Snapshot) []string {
	args := append(OnDevices("lvcreate", g), "-an", "-ky", "-pr", "-s", "-n", t.lv)
	args = append(args, AddTags(lvm.SnapshotTags(sn))...)
	return append(args, "--", origin.String())
}

// DiscardArgs removes a thin volume or snapshot that was never used, even if its pool refuses the message. A lvcreate that was
// killed between the message and the commit of the pool's transaction leaves a pool that refuses the same message again
// ("already contain thin device"). With -ff LVM continues, and its next command tells the pool to delete the device with that
// number.
func DiscardArgs(t Target, g lvm.Group, uuid string) []string {
	return append(OnDevices("lvremove", g), "-ff", "-S", Selection(g, uuid, lvm.StateCreating), "--", t.String())
}

// FlushName is the name of FlushArgs' volume: never a result of LVName or SnapshotName.
const FlushName = "nodelvm-flush"

// FlushArgs creates a thin volume only so that LVM first sends the pool the messages that a killed command left, and drops them
// (poolflush.go). -an: nothing uses the volume. It has the tags of a creating snapshot, so that the next start removes it if
// this command is killed.
func FlushArgs(g lvm.Group, pool lvm.LV, cluster string) []string {
	args := append(OnDevices("lvcreate", g), "-an", "--type", "thin", "-V", strconv.FormatInt(int64(g.ExtentSize), 10)+"b",
		"--thinpool", pool.Name, "-n", FlushName)
	args = append(args, AddTags(lvm.SnapshotTags(lvm.Snapshot{Name: FlushName, Cluster: cluster, Source: lvm.ID{LV: pool.Name}, State: lvm.StateCreating}))...)
	return append(args, "--", string(g.Name))
}

// roundArgs creates and activates a round. -kn: a node that boots can activate it again like any volume.
func roundArgs(t, origin Target, g lvm.Group, r lvm.Round) []string {
	args := append(OnDevices("lvcreate", g), "-ay", "-kn", "-pr", "-s", "-n", t.lv)
	args = append(args, AddTags(lvm.RoundTags(r))...)
	return append(args, "--", origin.String())
}
