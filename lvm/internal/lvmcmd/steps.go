package lvmcmd

import (
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/alloc"
)

// Step is one lvm process of a plan. Every step but a plan's last can be repeated, and does no harm if the later steps never run.
type Step struct{ Argv []string }

// Commits reports whether the command writes the group's metadata. A command that only creates or removes a device, or loads its
// table, does not.
func (s Step) Commits() bool {
	return s.Argv[0] != "lvchange" || !slices.ContainsFunc(s.Argv, func(word string) bool { return word == "-ay" || word == "-an" || word == "--refresh" })
}

// CommitsOf is the maximum number of the commands' commits (LVM 2.03.16 to 2.03.31; TestKnownZeroes_RealLVM verifies it). LVM
// commits a RAID with visible metadata first, a thin pool with its spare first, and before and after each message to a thin
// pool. lvchange commits once a volume.
func CommitsOf(steps []Step) (n int64) {
	for _, s := range steps {
		n += commandCommits(s.Argv)
	}
	return n
}

func commandCommits(argv []string) int64 {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(argv, word) })
	}
	kind := ""
	if i := slices.Index(argv, "--type"); i >= 0 && i+1 < len(argv) {
		kind = argv[i+1]
	}
	switch {
	case argv[0] == "lvcreate" && kind == "thin-pool":
		return 3
	case argv[0] == "lvcreate" && (strings.HasPrefix(kind, "raid") || kind == "thin" || has("-s")), argv[0] == "lvremove":
		return 2
	case argv[0] == "lvchange" && has("--addtag", "--deltag"):
		return int64(len(argv) - 1 - slices.Index(argv, "--"))
	case argv[0] == "lvchange":
		return 0
	}
	return 1
}

// CreateSteps are the commands that create a planned volume, in order.
func CreateSteps(c *alloc.Allocation) ([]Step, error) {
	t, err := TargetOf(c.Group.Name, c.Volume.ID.LV)
	if err != nil {
		return nil, err
	}
	steps, err := PoolSteps(c.Pool)
	if err != nil {
		return nil, err
	}
	if c.Volume.Class.Layout != lvm.LayoutThin {
		return append(steps, Step{createArgs(t, c)}), nil
	}
	if c.Source == nil {
		return append(steps, Step{thinArgs(t, c)}), nil
	}
	origin, err := TargetOf(c.Group.Name, c.Source.Name)
	if err != nil {
		return nil, err
	}
	steps = append(steps, Step{copyArgs(t, origin, c)})
	if c.Extents > c.Source.Extents {
		steps = append(steps, Step{extendArgs(t, c.Group, c.Extents, nil)})
	}
	return steps, nil
}

// ExtendSteps are the commands that extend a volume; none if it has its size.
func ExtendSteps(x alloc.Extension) ([]Step, error) {
	if x.Extents == 0 {
		return nil, nil
	}
	t, err := TargetOf(x.Group.Name, x.Lv)
	if err != nil {
		return nil, err
	}
	steps, err := PoolSteps(x.Pool)
	if err != nil {
		return nil, err
	}
	extend := extendArgs(t, x.Group, x.Extents, x.Ranges)
	if x.OnKnownZeroes {
		extend = withoutWaiting(extend)
	}
	return append(steps, Step{extend}), nil
}

// SnapshotSteps are the commands that create a planned snapshot.
func SnapshotSteps(p alloc.SnapshotPlacement) ([]Step, error) {
	return copySteps(p.Pool, p.Group, p.Snapshot.Source, p.Snapshot.ID, func(t, origin Target) []string { return snapshotArgs(t, origin, p.Group, p.Snapshot) })
}

// RoundSteps are the commands that create a planned round.
func RoundSteps(p alloc.RoundPlacement) ([]Step, error) {
	return copySteps(p.Pool, p.Group, p.Round.Source, p.Round.ID, func(t, origin Target) []string { return roundArgs(t, origin, p.Group, p.Round) })
}

// copySteps are what the pool needs, and the command that creates a thin snapshot, id, of origin.
func copySteps(pool *alloc.PoolGrowth, g lvm.Group, origin, id lvm.ID, args func(t, origin Target) []string) ([]Step, error) {
	from, err := TargetOf(g.Name, origin.LV)
	if err != nil {
		return nil, err
	}
	t, err := TargetOf(g.Name, id.LV)
	if err != nil {
		return nil, err
	}
	steps, err := PoolSteps(pool)
	if err != nil {
		return nil, err
	}
	return append(steps, Step{args(t, from)}), nil
}

// PoolSteps are the commands that a pool needs before it provisions more: none, to create it, to extend it, or both. Either does no
// harm if the next steps never run: the next plan extends the pool that it finds, and first removes an incomplete one.
func PoolSteps(p *alloc.PoolGrowth) ([]Step, error) {
	if p == nil {
		return nil, nil
	}
	t, err := TargetOf(p.Group.Name, p.Name)
	if err != nil {
		return nil, err
	}
	var steps []Step
	if len(p.Spares) > 0 {
		argv, err := sparesArgs(p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{argv})
	}
	if p.Debris != nil {
		steps = append(steps, Step{debrisArgs(t, p)})
	}
	if p.Home != nil {
		steps = append(steps, Step{poolArgs(t, p)})
	}
	if p.Ranges != nil {
		steps = append(steps, Step{extendArgs(t, p.Group, p.Data, p.Ranges)})
	}
	return steps, nil
}

// PoolExtensionSteps are the commands that extend a pool as it needs. LVM chooses the extents of the metadata, so the data gets its own before.
func PoolExtensionSteps(p alloc.Pool, n alloc.PoolNeed) ([]Step, error) {
	t, err := TargetOf(p.Group.Name, p.Name)
	if err != nil {
		return nil, err
	}
	var steps []Step
	if n.Data > p.Data {
		steps = append(steps, Step{extendArgs(t, p.Group, n.Data, alloc.LinearRanges(p.Space, n.Data-p.Data))})
	}
	if n.Metadata > 0 {
		args := append(OnDevices("lvextend", p.Group), "--alloc", "normal", "--poolmetadatasize", "+"+kib(p.Group.Bytes(n.Metadata)), "--", t.String())
		steps = append(steps, Step{args})
	}
	return steps, nil
}
