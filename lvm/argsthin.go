package lvm

import (
	"fmt"
	"strconv"
	"strings"
)

// debrisArgs removes what an earlier poolArgs left half made, if it still is what was looked at.
func debrisArgs(t target, p *poolGrowth) []string {
	guard := fmt.Sprintf("%s && lv_uuid=%s && lv_tags={%s}", asSeen(p.group), p.debris.UUID, encodeTag(keyKind, kindPool))
	return append(onDevices("lvremove", p.group), "-S", guard, "--", t.String())
}

// sparesArgs removes those of the volumes that LVM made when it was about to make its spare, and was killed.
func sparesArgs(p *poolGrowth) ([]string, error) {
	var uuids, targets []string
	for _, lv := range p.spares {
		t, err := targetOf(p.group.Name, lv.Name)
		if err != nil {
			return nil, err
		}
		uuids = append(uuids, "lv_uuid="+lv.UUID)
		targets = append(targets, t.String())
	}
	guard := fmt.Sprintf("%s && lv_host=%s && (%s)", asSeen(p.group), poolHost, strings.Join(uuids, " || "))
	return append(append(onDevices("lvremove", p.group), "-S", guard, "--"), targets...), nil
}

// poolArgs makes a thin pool whose new blocks read as zeroes; when it is full it refuses writes, instead of letting them
// wait (config.go: there is no option for that). LVM takes its spare, the data and the metadata from one run, so that where each lies is known
// beforehand.
func poolArgs(t target, p *poolGrowth) []string {
	args := append(onDevices("lvcreate", p.group), "--type", "thin-pool", "-Zy", "--discards", "passdown", "--alloc", "normal",
		"-l", decimal(p.first), "--poolmetadatasize", kib(p.group.bytes(p.metadata)), "-c", kib(p.chunk), "-n", t.lv)
	args = append(args, addTags(poolTags(p.cluster))...)
	args = append(args, "--", t.vg)
	return append(args, rangeArgs(p.home)...)
}

// thinArgs makes and activates an empty thin volume: its pool shows zeroes wherever nothing was written.
func thinArgs(t target, c *carving) []string {
	args := append(onDevices("lvcreate", c.group), "-ay", "--type", "thin",
		"-V", strconv.FormatInt(int64(c.volume.Size), 10)+"b", "--thinpool", c.volume.Class.Pool, "-n", t.lv)
	args = append(args, addTags(tagsOf(c.volume))...)
	return append(args, "--", t.vg)
}

// copyArgs makes and activates a thin volume that begins with the content of another one, or of a snapshot. -kn: it may
// be activated like any volume.
func copyArgs(t, origin target, c *carving) []string {
	args := append(onDevices("lvcreate", c.group), "-ay", "-kn", "-prw", "-s", "-n", t.lv)
	args = append(args, addTags(tagsOf(c.volume))...)
	return append(args, "--", origin.String())
}

// snapshotArgs takes a thin snapshot. -an -ky: nothing ever activates it, an admin's vgchange neither; -pr: should
// somebody do so nonetheless, it cannot be written.
func snapshotArgs(t, origin target, g Group, sn Snapshot) []string {
	args := append(onDevices("lvcreate", g), "-an", "-ky", "-pr", "-s", "-n", t.lv)
	args = append(args, addTags(snapshotTags(sn))...)
	return append(args, "--", origin.String())
}

// discardArgs removes a thin volume or snapshot that nobody has used, also if its pool refuses to be told of it: an lvcreate
// that was killed after it had told the pool, and before the pool had noted the transaction, left a pool that does not let
// it be told again ("already contain thin device"). -ff lets LVM go on without, and tell the pool with its next command to
// delete the device of that number.
func discardArgs(t target, g Group, uuid string) []string {
	return append(onDevices("lvremove", g), "-ff", "-S", guard(g, uuid, StateCreating), "--", t.String())
}

// flushName is the name of the volume that flushArgs makes: not one that lvName or snapshotName makes.
const flushName = "nodelvm-flush"

// flushArgs makes a thin volume for the sake of what LVM does before: it sends the pool the messages that a command left, and
// drops them (poolflush.go). -an: of the volume itself nothing is wanted. It bears the tags of a snapshot that was begun, so
// that a start removes it, should this be cut off.
func flushArgs(g Group, pool LV, cluster string) []string {
	args := append(onDevices("lvcreate", g), "-an", "--type", "thin", "-V", strconv.FormatInt(int64(g.ExtentSize), 10)+"b",
		"--thinpool", pool.Name, "-n", flushName)
	args = append(args, addTags(snapshotTags(Snapshot{Name: flushName, Cluster: cluster, Source: ID{LV: pool.Name}, State: StateCreating}))...)
	return append(args, "--", g.Name)
}
