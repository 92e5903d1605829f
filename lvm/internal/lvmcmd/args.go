package lvmcmd

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// Target names exactly one logical volume on a command line. lvremove and lvchange act on everything that matches when
// they are given a group or a tag; a target can only be made by TargetOf, so neither half is ever empty or a tag.
type Target struct{ vg, lv string }

func TargetOf(group, lv string) (Target, error) {
	if !lvm.NamePattern.MatchString(group) || !lvm.NamePattern.MatchString(lv) {
		return Target{}, lvm.Errorf(lvm.KindInternal, "%q/%q does not name a logical volume", group, lv)
	}
	return Target{group, lv}, nil
}

func (t Target) String() string { return t.vg + "/" + t.lv }

// DevicesOption names the devices that LVM may look at, with commas between them.
const DevicesOption = "--devices"

// OnDevices begins each command that writes: LVM looks at these disks and at no other, so that a clone, a namesake or a
// hanging device elsewhere does not matter. -y: there is nobody to answer a question. -An: what lvcreate makes is backed
// up with the commit that marks it as ready, a moment later; the copy costs it two flushes of the host's disk.
func OnDevices(name string, g lvm.Group) []string {
	devices := make([]string, 0, len(g.PVs))
	for _, pv := range g.PVs {
		if pv.Device != "" {
			devices = append(devices, pv.Device)
		}
	}
	list := strings.Join(devices, ",")
	if name == "lvcreate" {
		return []string{name, "-An", "-y", DevicesOption, list}
	}
	return []string{name, "-y", DevicesOption, list}
}

// createArgs makes, activates and clears a volume that is not thin on exactly the planned extents, with its tags in the
// same commit. -Wy -Zy wipe signatures that LVM knows and zero the first 4 KiB: what mkfs finds is blank. The allocation
// policy is named so that a group's own (contiguous, cling) does not refuse what was planned.
func createArgs(t Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "-Wy", "-Zy", "--alloc", "normal")
	args = append(args, layoutArgs(c)...)
	args = append(args, "-l", decimal(c.Extents), "-n", t.lv)
	args = append(args, AddTags(lvm.VolumeTags(c.Volume))...)
	args = append(args, "--", t.vg)
	return append(args, RangeArgs(c.Ranges)...)
}

// layoutArgs say how the extents lie. The region size is given, since LVM's own would depend on its configuration.
func layoutArgs(c *alloc.Allocation) []string {
	class := c.Volume.Class
	if class.Legs() == 0 {
		return nil
	}
	args := []string{"--type", string(class.Layout)}
	if class.Stripes > 0 {
		args = append(args, "-i", strconv.Itoa(class.Stripes), "-I", kib(class.StripeSize))
	}
	if class.Mirrors > 0 {
		args = append(args, "-m", strconv.Itoa(class.Mirrors))
	}
	if class.IsRAID() {
		args = append(args, "--regionsize", kib(alloc.RegionSize(c.Group, class, c.Extents)))
	}
	return args
}

func decimal(n lvm.Extents) string { return strconv.FormatInt(int64(n), 10) }

// kib writes a size that is whole KiB as LVM takes it.
func kib(size lvm.Bytes) string { return strconv.FormatInt(int64(size/lvm.KiB), 10) + "k" }

func AddTags(tags []string) []string {
	args := make([]string, 0, 2*len(tags))
	for _, tag := range tags {
		args = append(args, "--addtag", tag)
	}
	return args
}

// RangeArgs writes ranges as lvcreate takes them, those of one disk in one argument: PV:0-9:20-29. (A disk that is
// named twice counts once: only its first argument would be used.)
func RangeArgs(ranges []alloc.ExtentRange) []string {
	var devices []string
	byDevice := map[string]string{}
	for _, r := range ranges {
		if _, ok := byDevice[r.Device]; !ok {
			devices = append(devices, r.Device)
		}
		byDevice[r.Device] += fmt.Sprintf(":%d-%d", r.First, r.Last)
	}
	args := make([]string, 0, len(devices))
	for _, d := range devices {
		args = append(args, d+byDevice[d])
	}
	return args
}

// extendArgs makes a volume, or a pool's data, as large as so many extents, on exactly the planned ones. LVM refuses
// if it has that size already.
func extendArgs(t Target, g lvm.Group, extents lvm.Extents, ranges []alloc.ExtentRange) []string {
	args := append(OnDevices("lvextend", g), "--alloc", "normal", "-l", decimal(extents), "--", t.String())
	return append(args, RangeArgs(ranges)...)
}

// StateArgs moves a volume from one state to another in one commit, if it still is the one that was looked at.
func StateArgs(t Target, g lvm.Group, uuid string, from, to lvm.VolumeState) []string {
	return append(OnDevices("lvchange", g), "-S", Selection(g, uuid, from), "--deltag", lvm.StateTag(from), "--addtag", lvm.StateTag(to), "--", t.String())
}

// ReadyArgs moves volumes of one group from creating to ready in one commit, those that are still what was looked at.
// More than readyBatchMax of them take a further command.
func ReadyArgs(g lvm.Group, volumes []lvm.Volume) ([]Step, error) {
	var steps []Step
	for batch := range slices.Chunk(volumes, readyBatchMax) {
		uuids := make([]string, 0, len(batch))
		targets := make([]string, 0, len(batch))
		for _, v := range batch {
			t, err := TargetOf(g.Name, v.ID.LV)
			if err != nil {
				return nil, err
			}
			uuids = append(uuids, "lv_uuid="+v.UUID)
			targets = append(targets, t.String())
		}
		guard := fmt.Sprintf("%s && lv_tags={%s} && (%s)", UnchangedSelection(g), lvm.StateTag(lvm.StateCreating), strings.Join(uuids, " || "))
		args := append(OnDevices("lvchange", g), "-S", guard, "--deltag", lvm.StateTag(lvm.StateCreating), "--addtag", lvm.StateTag(lvm.StateReady), "--")
		steps = append(steps, Step{append(args, targets...)})
	}
	return steps, nil
}

// readyBatchMax bounds the length of one command line: about 130 bytes a volume.
const readyBatchMax = 100

// ActivateArgs makes the volume's device; nothing is done if it is there.
func ActivateArgs(t Target, g lvm.Group) []string {
	return append(OnDevices("lvchange", g), "-ay", "--", t.String())
}

// RefreshArgs loads the volume's table anew and resumes its device.
func RefreshArgs(t Target, g lvm.Group) []string {
	return append(OnDevices("lvchange", g), "--refresh", "--", t.String())
}

// RemoveArgs deactivates and removes the volume, if it still is the one that was looked at, in that state.
func RemoveArgs(t Target, g lvm.Group, uuid string, state lvm.VolumeState) []string {
	return append(OnDevices("lvremove", g), "-S", Selection(g, uuid, state), "--", t.String())
}

// Selection is a compare-and-swap: LVM evaluates it under the group's lock (lvmreport(7), "SELECTION"). A volume that does
// not match is left alone, and the exit status is 0 nonetheless: who uses it must look afterwards.
func Selection(g lvm.Group, uuid string, state lvm.VolumeState) string {
	return fmt.Sprintf("%s && lv_uuid=%s && lv_tags={%s}", UnchangedSelection(g), uuid, lvm.StateTag(state))
}

// UnchangedSelection is the part of each guard that keeps lvchange and lvremove from committing while another disk is away than when the
// group was read, or has come to the group since, so that --devices lacks it: they would mark that disk as missing.
func UnchangedSelection(g lvm.Group) string {
	missing := 0
	for _, pv := range g.PVs {
		if pv.Missing {
			missing++
		}
	}
	return fmt.Sprintf("vg_missing_pv_count=%d", missing)
}

// ReportArgs is the one command that tells a State, lvmreport(7). It looks at these devices alone: on others may be groups that
// the owners of volumes made up. Hidden volumes (-a) and groups that are another
// host's or shared are in it, so that their problem can be named; no column that would cost a question to the kernel
// for each volume. LVM does not say in it which PVs have a double: only Disks sees that.
func ReportArgs(devices []string) []string {
	return []string{
		"fullreport", DevicesOption, strings.Join(devices, ","), "-a", "--foreign", "--shared", "--reportformat", "json", "--units", "b", "--nosuffix", "--binary",
		"--configreport", "vg", "-o", "vg_uuid,vg_name,vg_tags,vg_seqno,vg_extent_size,vg_mda_size,vg_mda_free," +
			"vg_exported,vg_extendable,vg_permissions,vg_clustered,vg_shared,vg_lock_type,vg_systemid",
		"--configreport", "pv", "-o", "pv_uuid,pv_name,pv_pe_count,pv_missing,pv_allocatable,pe_start,dev_size",
		"--configreport", "lv", "-o", "lv_uuid,lv_name,lv_size,lv_tags,lv_time,origin,pool_lv,data_lv,metadata_lv,mirror_log",
		"--configreport", "pvseg", "-o", "pv_uuid,pvseg_start,pvseg_size,segtype,lv_uuid,seg_start_pe",
		"--configreport", "seg", "-o", "lv_uuid,seg_start_pe,seg_size_pe,segtype,stripe_size,region_size,chunk_size,zero," +
			"devices,metadata_devices",
	}
}
