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
	checkPatience = 20 * time.Second // for one comparison: a start waits for it
	checkAttempts = 3                // a difference must show each time
)

// CheckedReader reads the disks directly and holds that to LVM's own report: when it is told to, and, as long as it is
// used, every ten minutes behind its callers' backs. Where the two differ at the same seqnos, the direct reading is
// wrong, or not about what LVM works with: from then on the report alone is used, at the price of one process a reading.
type CheckedReader struct {
	Direct lvm.Reader
	Report func(ctx context.Context, devices []string) (lvm.State, error) // looks at these devices alone
	Later  func(func(context.Context))                                    // runs it behind, with a context that ends with the Host
	Log    *slog.Logger

	mu  sync.Mutex
	due time.Time // of the next comparison; zero: none was made yet, and none is made by itself
	Off string    // how the two differed; empty while they agree
}

// Read implements Reader. What the disks cannot tell, LVM's report does, one process. Which devices LVM may look at, the direct
// reading tells in any case.
func (c *CheckedReader) Read(ctx context.Context) (lvm.State, error) {
	s, err := c.Direct.Read(ctx)
	if err != nil && (ctx.Err() != nil || len(s.Devices) == 0) {
		return lvm.State{}, err // where LVM may look is not known
	}
	if c.Difference() != "" {
		reported, err := c.Report(ctx, s.Devices)
		reported.Devices, reported.Skipped, reported.Unresponsive = s.Devices, s.Skipped, s.Unresponsive
		return reported, err
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

// Difference tells how the two readings differed, if they ever did.
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

// Check compares the two readings now, and the next time in ten minutes.
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

// compare answers the first difference. Groups that change meanwhile are not compared. LVM is not asked while a disk
// does not answer: it would hang.
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

// compareStates holds LVM's report to two direct readings, before and after it.
func compareStates(before, report, after lvm.State) string {
	for _, g := range before.Groups {
		same := groupByUUID(after, g.UUID)
		if same == nil || !reflect.DeepEqual(g, *same) || strings.Contains(g.Problem, lvm.DuplicatePhrase) {
			continue // it changes, or LVM sees only one copy of a disk
		}
		told := groupByUUID(report, g.UUID)
		if told == nil {
			return fmt.Sprintf("volume group %s (%s) is on the disks, and not in LVM's report%s", g.Name, g.UUID, lvm.Parenthesized(after.UnreadDevices))
		}
		if told.Seqno != g.Seqno {
			continue // it was changed and reported before it could be read again
		}
		if diff := firstDifference("volume group "+g.Name, reflect.ValueOf(g), reflect.ValueOf(withComparableProblem(*told, g))); diff != "" {
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

func groupByUUID(s lvm.State, uuid string) *lvm.Group {
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.UUID == uuid })
	if i < 0 {
		return nil
	}
	return &s.Groups[i]
}

// withComparableProblem answers a reported group in the words of the direct reading: LVM may know a disk by another name, and does
// not say which volume's checksums an integrity volume holds, what a thin pool is still to be told, where it is written
// that a disk is missing, nor the text's checksum.
func withComparableProblem(g lvm.Group, direct lvm.Group) lvm.Group {
	g.PVs, g.LVs = slices.Clone(g.PVs), slices.Clone(g.LVs)
	g.Checksum = direct.Checksum
	g.AutoActivation = direct.AutoActivation
	if direct.MDASize == maxText { // LVM counts what it could write beyond
		g.MDAFree = direct.MDAFree
	}
	for i := range min(len(g.PVs), len(direct.PVs)) {
		ours, theirs := direct.PVs[i].Device, g.PVs[i].Device
		if ours != theirs && sameDevice(ours, theirs) {
			g.PVs[i].Device = ours
			g.Problem = strings.ReplaceAll(g.Problem, theirs+" ", ours+" ")
		}
		g.PVs[i].MissingFlag, g.PVs[i].MetadataUnreadable, g.PVs[i].DuplicateDevices = direct.PVs[i].MissingFlag, direct.PVs[i].MetadataUnreadable, direct.PVs[i].DuplicateDevices
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
