package ondisk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// CheckedReader reads the disks directly, and compares the readings with LVM's report: on request, and in the background every
// ten minutes while callers read. If the two differ at the same seqnos, the direct reading is wrong, or reads other devices
// than LVM. From then on it uses only the report, which costs one process a reading.
type CheckedReader struct {
	Direct lvm.Reader
	Report func(ctx context.Context, devices []string) (lvm.State, error) // LVM opens only these devices
	Later  func(func(context.Context))                                    // runs a function in the background, with a context that ends with the Host
	Log    *slog.Logger

	mu  sync.Mutex
	due time.Time // time of the next comparison; zero: none yet, and none starts by itself
	Off string    // how the two differed; "": they agree
}

// Read implements Reader. LVM's report, one process, supplies what the direct reading cannot. The direct reading always
// determines which devices LVM may open.
func (c *CheckedReader) Read(ctx context.Context) (lvm.State, error) {
	s, err := c.Direct.Read(ctx)
	if err != nil && (ctx.Err() != nil || len(s.Devices) == 0) {
		return lvm.State{}, err // it is unknown which devices LVM may open
	}
	if c.Difference() != "" {
		reported, err := c.Report(ctx, s.Devices)
		if err != nil {
			return lvm.State{}, err
		}
		return overruledBy(s, reported), nil
	}
	if err == nil {
		if c.isDue() {
			c.Later(c.Check)
		}
		return s, nil
	}
	c.Log.Debug("cannot read the disks directly; running LVM instead", "error", err)
	reported, reportErr := c.Report(ctx, s.Devices)
	if reportErr != nil {
		return lvm.State{}, errors.Join(err, reportErr)
	}
	return completedBy(s, reported), nil
}

// Difference returns the difference that Check found; "": none.
func (c *CheckedReader) Difference() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Off
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

// Check compares the two readings now, and schedules the next comparison in ten minutes.
func (c *CheckedReader) Check(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	found := ""
	for range checkAttempts {
		var err error
		if found, err = c.compare(ctx); err != nil {
			c.Log.Warn("cannot compare the disks with LVM's report", "error", err)
		}
		if found == "" {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = time.Now().Add(checkEvery)
	if found != "" && c.Off == "" {
		c.Off = found
		c.Log.Error("direct metadata read differs from LVM's report: direct reads disabled until the next start, each read runs LVM; please report this with the output of vgcfgbackup", "difference", found)
	}
}

// compare returns the first difference. It ignores groups that change meanwhile. It does not run LVM while a disk is
// unresponsive, because LVM would block.
func (c *CheckedReader) compare(ctx context.Context) (string, error) {
	before, err := c.Direct.Read(ctx)
	if err != nil || len(before.Unresponsive) > 0 {
		return "", err
	}
	report, err := c.Report(ctx, before.Devices)
	if err != nil {
		return "", err
	}
	after, err := c.Direct.Read(ctx)
	if err != nil {
		return "", err
	}
	return compareStates(before, report, after), nil
}

// compareStates compares LVM's report with two direct readings, before and after it.
func compareStates(before, report, after lvm.State) string {
	for _, g := range before.Groups {
		same := groupByUUID(after, g.UUID)
		if same == nil || !reflect.DeepEqual(g, *same) || lvm.CheckNoDuplicatePV(g) != nil {
			continue // the group changes, or LVM sees only one copy of a disk
		}
		told := groupByUUID(report, g.UUID)
		if told == nil {
			return fmt.Sprintf("volume group %s (%s) is on the disks, and not in LVM's report%s", g.Name, g.UUID, lvm.Parenthesized(after.UnreadDevices))
		}
		if told.Seqno != g.Seqno {
			continue // a commit and the report came before the second reading
		}
		if diff := firstDifference("volume group "+string(g.Name), reflect.ValueOf(g), reflect.ValueOf(withComparableProblem(*told, g))); diff != "" {
			return diff + lvm.Parenthesized(after.UnreadDevices)
		}
	}
	for _, g := range report.Groups {
		if groupByUUID(before, g.UUID) == nil && groupByUUID(after, g.UUID) == nil {
			return fmt.Sprintf("volume group %s (%s) is in LVM's report, and not on the disks that can be read%s", g.Name, g.UUID, lvm.Parenthesized(after.UnreadDevices))
		}
	}
	return ""
}

func groupByUUID(s lvm.State, uuid lvm.VGUUID) *lvm.Group {
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == uuid })
	if i < 0 {
		return nil
	}
	return &s.Groups[i]
}

// withComparableProblem returns a reported group with the direct reading's values where the report has none or may differ. LVM
// may use another name of a disk. It does not report which volume's checksums an integrity volume has, a pool's messages, the
// MISSING flag, the block size of a disk, or the text's checksum.
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
		if ours, theirs := direct.LVs[i].Thin, g.LVs[i].Thin; ours != nil && theirs != nil {
			told := *theirs
			told.Messages = ours.Messages
			g.LVs[i].Thin = &told
		}
	}
	return g
}

func sameDevice(a, b string) bool {
	var sa, sb unix.Stat_t
	return unix.Stat(a, &sa) == nil && unix.Stat(b, &sb) == nil && sa.Mode&unix.S_IFMT == unix.S_IFBLK && sa.Rdev == sb.Rdev
}
