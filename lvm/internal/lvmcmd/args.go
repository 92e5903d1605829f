package lvmcmd

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// Target names exactly one logical volume on a command line. lvremove and lvchange act on every match of a group or a tag. Only
// TargetOf creates a target, so neither half is ever empty or a tag.
type Target struct {
	vg lvm.VGName
	lv string
}

func TargetOf(group lvm.VGName, lv string) (Target, error) {
	if !lvm.NamePattern.MatchString(string(group)) || !lvm.NamePattern.MatchString(lv) {
		return Target{}, lvm.Errorf(lvm.KindInternal, "%q/%q does not name a logical volume", group, lv)
	}
	return Target{group, lv}, nil
}

func (t Target) String() string { return string(t.vg) + "/" + t.lv }

// DevicesOption names the devices that LVM may open, separated by commas.
const DevicesOption = "--devices"

// OnDevices begins each command that writes. LVM opens these disks and no other, so a clone, a second volume group with the
// name or an unresponsive device elsewhere does not matter. -y: the command has no terminal. -An: the commit that marks a
// volume as ready backs up the metadata too, a moment later; a copy at lvcreate would cost two more flushes of the host's disk.
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

// createArgs creates, activates and wipes a volume that is not thin, on exactly the planned extents and with its tags in the
// same commit. -Wy -Zy wipe the signatures that LVM knows and zero the first 4 KiB, so that mkfs finds a blank device. It names
// the allocation policy, because a group's own (contiguous, cling) could refuse the plan.
func createArgs(t Target, c *alloc.Allocation) []string {
	args := append(OnDevices("lvcreate", c.Group), "-ay", "-Wy", "-Zy", "--alloc", "normal")
	args = append(args, layoutArgs(c)...)
	args = append(args, "-l", decimal(c.Extents), "-n", t.lv)
	args = append(args, AddTags(newVolumeTags(c))...)
	args = append(args, "--", string(t.vg))
	return append(args, RangeArgs(c.Ranges)...)
}

// newVolumeTags are the tags of a planned volume. One says where its format mark will be, so that no expansion hides the mark.
func newVolumeTags(c *alloc.Allocation) []string {
	v := c.Volume
	if v.NeedsFormatMark() && v.State != lvm.StateReceiving {
		v.FormatMark = lvm.FormatMarkOffset(c.Group.Bytes(c.Extents))
	}
	return lvm.VolumeTags(v)
}

// layoutArgs select the layout. They set the region size, because LVM's default depends on its configuration.
func layoutArgs(c *alloc.Allocation) []string {
	class := c.Volume.Class
	args := class.Options()
	if class.Legs() > 0 {
		args = append([]string{"--type", string(class.Layout)}, args...)
	}
	if class.IsRAID() {
		args = append(args, "--regionsize", kib(alloc.RegionSize(c.Group, class, c.Extents)))
	}
	return args
}

func decimal(n lvm.Extents) string { return strconv.FormatInt(int64(n), 10) }

// kib formats a size of whole KiB for LVM.
func kib(size lvm.Bytes) string { return strconv.FormatInt(int64(size/lvm.KiB), 10) + "k" }

func AddTags(tags []string) []string {
	args := make([]string, 0, 2*len(tags))
	for _, tag := range tags {
		args = append(args, "--addtag", tag)
	}
	return args
}

// RangeArgs formats ranges for lvcreate, those of one disk in one argument: PV:0-9:20-29. (LVM uses only the first argument for
// a disk.)
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

// extendArgs extends a volume, or a pool's data, to so many extents, on exactly the planned ones. LVM refuses if it has that
// size already.
func extendArgs(t Target, g lvm.Group, extents lvm.Extents, ranges []alloc.ExtentRange) []string {
	args := append(OnDevices("lvextend", g), "--alloc", "normal", "-l", decimal(extents), "--", t.String())
	return append(args, RangeArgs(ranges)...)
}

// withoutWaiting makes a command fail if another one has the group's lock: while it waited, that one could use the extents that the
// command names, and free them.
func withoutWaiting(args []string) []string {
	return slices.Insert(args, 1, "--config", "global/wait_for_locks=0")
}

// IsLockTaken reports whether a command of withoutWaiting failed because of the lock (LVM 2.03.16 to 2.03.31).
func IsLockTaken(err error) bool {
	var exit *lvm.ExitError
	return errors.As(err, &exit) && exit.Code > 0 && strings.Contains(exit.Stderr, "Can't get lock for")
}

// StateArgs changes a volume's state tag in one commit, if it still is the planned volume.
func StateArgs(t Target, g lvm.Group, uuid string, from, to lvm.VolumeState) []string {
	return append(OnDevices("lvchange", g), "-S", Selection(g, uuid, from), "--deltag", lvm.StateTag(from), "--addtag", lvm.StateTag(to), "--", t.String())
}

// LimitsArgs replaces what a volume's tags record of its limits, in one commit.
func LimitsArgs(t Target, g lvm.Group, lv lvm.LV, limits lvm.Limits) []string {
	args := append(OnDevices("lvchange", g), "-S", UnchangedSelection(g)+" && lv_uuid="+lv.UUID)
	for _, tag := range lvm.LimitsTags(lv.Tags) {
		args = append(args, "--deltag", tag)
	}
	if tag := lvm.LimitsTag(limits); tag != "" {
		args = append(args, "--addtag", tag)
	}
	return append(args, "--", t.String())
}

// MoveArgs replaces the tags of a volume that say how far its move is in one commit, if the volume still has the state from. had are its tags now.
func MoveArgs(t Target, g lvm.Group, uuid string, from lvm.VolumeState, had []string, next lvm.Volume) []string {
	args := append(OnDevices("lvchange", g), "-S", Selection(g, uuid, from))
	want := lvm.MoveTags(next)
	for _, tag := range had {
		if lvm.IsMoveTag(tag) && !slices.Contains(want, tag) {
			args = append(args, "--deltag", tag)
		}
	}
	for _, tag := range want {
		if !slices.Contains(had, tag) {
			args = append(args, "--addtag", tag)
		}
	}
	return append(args, "--", t.String())
}

// ReadyArgs marks creating volumes of one group as ready in one commit, if they still are the planned ones. More than
// readyBatchMax volumes need several commands.
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

// readyBatchMax limits the length of one command line: a volume takes about 130 bytes.
const readyBatchMax = 100

// ActivateArgs activates the volume, if it is inactive. LVM otherwise skips a snapshot: one of the driver (snapshotArgs), and one of an admin,
// also after its adoption.
func ActivateArgs(g lvm.Group, volumes ...Target) []string {
	return appendTargets(append(OnDevices("lvchange", g), "-ay", "-K", "--"), volumes)
}

// ActivateIfArgs is ActivateArgs for a logical volume of which only the name and the UUID are known. LVM activates only one with the driver's
// tags that pods may use.
func ActivateIfArgs(t Target, g lvm.Group, uuid string) []string {
	guard := fmt.Sprintf("lv_uuid=%s && lv_tags={%s} && (lv_tags={%s} || lv_tags={%s})", uuid,
		lvm.EncodeTag(lvm.KeyVersion, lvm.TagVersion), lvm.StateTag(lvm.StateReady), lvm.StateTag(lvm.StateCreating))
	return append(OnDevices("lvchange", g), "-ay", "-K", "-S", guard, "--", t.String())
}

// DeactivateArgs deactivates volumes of a group. LVM refuses while one is in use.
func DeactivateArgs(g lvm.Group, volumes ...Target) []string {
	return appendTargets(append(OnDevices("lvchange", g), "-an", "--"), volumes)
}

func appendTargets(args []string, volumes []Target) []string {
	for _, t := range volumes {
		args = append(args, t.String())
	}
	return args
}

// RefreshArgs reloads the volume's table and resumes its device.
func RefreshArgs(t Target, g lvm.Group) []string {
	return append(OnDevices("lvchange", g), "--refresh", "--", t.String())
}

// RemoveArgs deactivates and removes the volume, if it still is the planned one, in that state.
func RemoveArgs(t Target, g lvm.Group, uuid string, state lvm.VolumeState) []string {
	return append(OnDevices("lvremove", g), "-S", Selection(g, uuid, state), "--", t.String())
}

// Selection is a compare-and-swap: LVM evaluates it under the group's lock (lvmreport(7), "SELECTION"). LVM ignores a volume
// that does not match, with exit status 0: the caller must read the result.
func Selection(g lvm.Group, uuid string, state lvm.VolumeState) string {
	return fmt.Sprintf("%s && lv_uuid=%s && lv_tags={%s}", UnchangedSelection(g), uuid, lvm.StateTag(state))
}

// UnchangedSelection is a part of each selection. It keeps lvchange and lvremove from a commit if a disk of the group is
// missing or was added since the reading. --devices lacks an added disk, so LVM would set the MISSING flag for it.
func UnchangedSelection(g lvm.Group) string {
	missing := 0
	for _, pv := range g.PVs {
		if pv.Missing {
			missing++
		}
	}
	return fmt.Sprintf("vg_missing_pv_count=%d", missing)
}

// ReportArgs is the one command that prints a State, lvmreport(7). LVM opens these devices only: tenants can write volume
// groups to others. The report has hidden volumes (-a), and foreign and shared groups, so that an error can name their problem.
// It has no column that needs a kernel request for each volume. It does not say which PVs have a duplicate: only ondisk.Disks
// finds that.
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
