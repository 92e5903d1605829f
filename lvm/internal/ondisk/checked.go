package ondisk

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	checkEvery    = 10 * time.Minute
	checkPatience = 20 * time.Second // for one comparison; the driver's start waits for it
	checkAttempts = 3                // a difference counts if each finds one
)

// CheckedReader reads the disks, and compares the readings with LVM's report: on request, and in the background every ten minutes while
// callers read. If the two differ at one seqno, the reading is wrong, or LVM reads other devices. Then nothing changes the group until a
// later comparison finds that they agree. The report supplies no state.
type CheckedReader struct {
	Direct lvm.Reader
	Report func(ctx context.Context, devices []string) (lvm.State, error) // LVM opens only these devices
	Later  func(func(context.Context))                                    // runs a function in the background, with a context that ends with the Host
	Log    *slog.Logger

	mu          sync.Mutex
	due         time.Time             // time of the next comparison; zero: none yet, and none starts by itself
	differences map[lvm.VGUUID]string // of the last comparison of each group
}

// Read implements Reader.
func (c *CheckedReader) Read(ctx context.Context) (lvm.State, error) {
	s, err := c.Direct.Read(ctx)
	if err != nil {
		return lvm.State{}, err
	}
	if c.isDue() {
		c.Later(c.Check)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return refuseDifferent(s, c.differences), nil
}

// refuseDifferent closes the groups that differ. A group that only LVM's report has may be on the disks: no volume is proven absent.
func refuseDifferent(s lvm.State, differences map[lvm.VGUUID]string) lvm.State {
	if len(differences) == 0 {
		return s
	}
	s.Groups, s.UnreadDevices = slices.Clone(s.Groups), slices.Clone(s.UnreadDevices)
	for _, uuid := range slices.Sorted(maps.Keys(differences)) {
		g := groupByUUID(s, uuid)
		if g == nil {
			s.UnreadDevices = append(s.UnreadDevices, differences[uuid])
			continue
		}
		g.Closed = true
		g.Problem = cmp.Or(g.Problem, fmt.Sprintf("the driver reads its metadata differently than LVM does: %s. Its volumes stay usable; please report this with the output of vgcfgbackup", differences[uuid]))
	}
	return s
}

// Difference describes the differences that Check found; "": none.
func (c *CheckedReader) Difference() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(c.differences)), "; ")
}

func (c *CheckedReader) isDue() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due.IsZero() || time.Now().Before(c.due) {
		return false
	}
	c.due = time.Now().Add(checkEvery)
	return true
}

// Check compares the two readings now, and schedules the next comparison in ten minutes. A group that cannot be compared keeps the result
// of its last comparison.
func (c *CheckedReader) Check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	found, err := c.compare(ctx)
	for range checkAttempts - 1 {
		if len(found.differences) == 0 || err != nil {
			break
		}
		var again comparison
		if again, err = c.compare(ctx); err == nil {
			maps.DeleteFunc(found.differences, func(uuid lvm.VGUUID, _ string) bool { return again.differences[uuid] == "" })
			found.skipped = func(uuid lvm.VGUUID) bool { return again.skipped(uuid) }
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Now().Add(checkEvery)
	if err != nil {
		c.Log.Warn("cannot compare the disks with LVM's report", "error", err)
		return
	}
	for uuid, text := range c.differences {
		if _, still := found.differences[uuid]; !still && found.skipped(uuid) {
			found.differences[uuid] = text
		}
	}
	for uuid, text := range found.differences {
		if c.differences[uuid] != text {
			c.Log.Error("the driver reads the metadata of a volume group differently than LVM does, and changes nothing in the group; please report this with the output of vgcfgbackup", "vg_uuid", uuid, "difference", text)
		}
	}
	c.differences = found.differences
}

// comparison is the result of one comparison.
type comparison struct {
	differences map[lvm.VGUUID]string
	skipped     func(lvm.VGUUID) bool // whether a group was not compared
}

// compare does not run LVM while a disk is unresponsive, because LVM would block.
func (c *CheckedReader) compare(ctx context.Context) (found comparison, err error) {
	found = comparison{map[lvm.VGUUID]string{}, func(lvm.VGUUID) bool { return true }}
	before, err := c.Direct.Read(ctx)
	if err != nil || len(before.Unresponsive) > 0 {
		return found, err
	}
	report, err := c.Report(ctx, before.Devices)
	if err != nil {
		return found, err
	}
	after, err := c.Direct.Read(ctx)
	if err != nil {
		return found, err
	}
	return compareStates(before, report, after), nil
}

// compareStates compares LVM's report with two direct readings, before and after it. It leaves out groups that change meanwhile, of whose
// disks LVM sees only one copy, or that the driver does not change although LVM would.
func compareStates(before, report, after lvm.State) comparison {
	found, skipped := map[lvm.VGUUID]string{}, map[lvm.VGUUID]bool{}
	for _, g := range before.Groups {
		same, reported := groupByUUID(after, g.UUID), groupByUUID(report, g.UUID)
		switch {
		case same == nil || !reflect.DeepEqual(g, *same) || lvm.CheckNoDuplicatePV(g) != nil || reported != nil && g.Closed && !reported.Closed:
			skipped[g.UUID] = true
		case reported == nil:
			found[g.UUID] = fmt.Sprintf("volume group %s (%s) is on the disks, and not in LVM's report", g.Name, g.UUID)
		case reported.Seqno != g.Seqno: // a commit and the report came before the second reading
			skipped[g.UUID] = true
		default:
			found[g.UUID] = firstDifference("volume group "+string(g.Name), reflect.ValueOf(g), reflect.ValueOf(withComparableProblem(*reported, g)))
		}
	}
	for _, g := range report.Groups {
		if groupByUUID(before, g.UUID) == nil && groupByUUID(after, g.UUID) == nil {
			found[g.UUID] = fmt.Sprintf("volume group %s (%s) is in LVM's report, and not on the disks that can be read", g.Name, g.UUID)
		}
	}
	for uuid, text := range found {
		if text == "" {
			delete(found, uuid)
		} else {
			found[uuid] = text + lvm.Parenthesized(after.UnreadDevices)
		}
	}
	return comparison{found, func(uuid lvm.VGUUID) bool { return skipped[uuid] }}
}

func groupByUUID(s lvm.State, uuid lvm.VGUUID) *lvm.Group {
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == uuid })
	if i < 0 {
		return nil
	}
	return &s.Groups[i]
}

// withComparableProblem returns a reported group with the direct reading's values where the report has none or may differ. LVM
// may use another name of a disk. It does not report which volume's checksums an integrity volume has, a pool's messages, a
// thin volume's number, the MISSING flag, the block size of a disk, or the text's checksum. It may know the type of a segment that the reader does not.
func withComparableProblem(g lvm.Group, direct lvm.Group) lvm.Group {
	g.PVs, g.LVs = slices.Clone(g.PVs), slices.Clone(g.LVs)
	g.Checksum = direct.Checksum
	g.AutoActivation = direct.AutoActivation
	if direct.MDASize == maxText { // LVM includes the space beyond maxText
		g.MDAFree = direct.MDAFree
	}
	for i := range min(len(g.PVs), len(direct.PVs)) {
		ours, theirs := direct.PVs[i].Device, g.PVs[i].Device
		if ours != theirs && sameDevice(ours, theirs) {
			g.PVs[i].Device = ours
			g.Problem = strings.ReplaceAll(g.Problem, theirs+" ", ours+" ")
		}
		g.PVs[i].MissingFlag, g.PVs[i].MetadataUnreadable, g.PVs[i].DuplicateDevices = direct.PVs[i].MissingFlag, direct.PVs[i].MetadataUnreadable, direct.PVs[i].DuplicateDevices
		g.PVs[i].BlockSize = direct.PVs[i].BlockSize
		if sameDevice(direct.PVs[i].ReappearedDevice, g.PVs[i].ReappearedDevice) {
			g.PVs[i].ReappearedDevice = direct.PVs[i].ReappearedDevice
		}
	}
	for i := range min(len(g.LVs), len(direct.LVs)) {
		if strings.HasSuffix(g.LVs[i].Name, "_imeta") && g.LVs[i].Name == direct.LVs[i].Name {
			g.LVs[i].UsedBy = direct.LVs[i].UsedBy
		}
		g.LVs[i].ThinID = direct.LVs[i].ThinID
		if ours, theirs := direct.LVs[i].Thin, g.LVs[i].Thin; ours != nil && theirs != nil {
			thin := *theirs
			thin.Messages, thin.TransactionID = ours.Messages, ours.TransactionID
			g.LVs[i].Thin = &thin
		}
	}
	if slices.ContainsFunc(direct.LVs, isOpaque) {
		takeOpaque(&g, direct)
	}
	return g
}

// isOpaque reports whether a volume has a segment of a type that the reader does not know.
func isOpaque(lv lvm.LV) bool {
	return slices.ContainsFunc(lv.Segments, func(s lvm.Segment) bool { return !pvSegments[s.Type] && !lvSegments[s.Type] })
}

// takeOpaque gives a reported group the direct reading's values that an opaque volume makes unknown. Extents that only the reading calls free
// remain a difference: the volume may name its disks in a way that the reader does not see.
func takeOpaque(g *lvm.Group, direct lvm.Group) {
	for i := range min(len(g.PVs), len(direct.PVs)) {
		if len(direct.PVs[i].Free) == 0 {
			g.PVs[i].Free = direct.PVs[i].Free
		}
	}
	for i := range min(len(g.LVs), len(direct.LVs)) {
		ours, theirs := direct.LVs[i], &g.LVs[i]
		if theirs.UsedBy = ours.UsedBy; isOpaque(ours) {
			theirs.Type, theirs.Segments = ours.Type, ours.Segments
		}
	}
}

func sameDevice(a, b string) bool {
	var sa, sb unix.Stat_t
	return unix.Stat(a, &sa) == nil && unix.Stat(b, &sb) == nil && sa.Mode&unix.S_IFMT == unix.S_IFBLK && sa.Rdev == sb.Rdev
}
