package lvm

import (
	"slices"
	"strings"
)

// step is one LVM process of a plan. Every step but a plan's last may be repeated, or left standing, without harm.
type step struct{ argv []string }

// commits tells whether a command writes the group's metadata: one that only makes a device, or loads its table, does not.
func (s step) commits() bool {
	return s.argv[0] != "lvchange" || !slices.Contains(s.argv, "-ay") && !slices.Contains(s.argv, "--refresh")
}

// commitsOf bounds how often the commands commit (LVM 2.03.16 to 2.03.31; TestRealKnownZeroes holds it to them): a RAID is
// made with its metadata visible first, a thin pool with its spare, and what a thin pool is told is committed before and
// after. lvchange commits for each volume apart.
func commitsOf(steps []step) (n int64) {
	for _, s := range steps {
		n += commandCommits(s.argv)
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

// createSteps are the commands that make a planned volume, in order.
func createSteps(c *carving) ([]step, error) {
	t, err := targetOf(c.group.Name, c.volume.ID.LV)
	if err != nil {
		return nil, err
	}
	steps, err := poolSteps(c.pool)
	if err != nil {
		return nil, err
	}
	if c.volume.Class.Layout != LayoutThin {
		return append(steps, step{createArgs(t, c)}), nil
	}
	if c.source == nil {
		return append(steps, step{thinArgs(t, c)}), nil
	}
	origin, err := targetOf(c.group.Name, c.source.Name)
	if err != nil {
		return nil, err
	}
	steps = append(steps, step{copyArgs(t, origin, c)})
	if c.extents > c.source.Extents {
		steps = append(steps, step{extendArgs(t, c.group, c.extents, nil)})
	}
	return steps, nil
}

// extendSteps are the commands that make a volume larger; none if it has its size already.
func extendSteps(x extension) ([]step, error) {
	if x.extents == 0 {
		return nil, nil
	}
	t, err := targetOf(x.group.Name, x.lv)
	if err != nil {
		return nil, err
	}
	steps, err := poolSteps(x.pool)
	if err != nil {
		return nil, err
	}
	return append(steps, step{extendArgs(t, x.group, x.extents, x.ranges)}), nil
}

// snapshotSteps are the commands that take a planned snapshot.
func snapshotSteps(p snapshotPlacement) ([]step, error) {
	origin, err := targetOf(p.group.Name, p.snapshot.Source.LV)
	if err != nil {
		return nil, err
	}
	t, err := targetOf(p.group.Name, p.snapshot.ID.LV)
	if err != nil {
		return nil, err
	}
	steps, err := poolSteps(p.pool)
	if err != nil {
		return nil, err
	}
	return append(steps, step{snapshotArgs(t, origin, p.group, p.snapshot)}), nil
}

// poolSteps are the commands that a pool needs before it promises more: none, or making it, growing it, or both. Each may
// be left standing: the pool is found as it is, and grows from there; one that is half made is removed first.
func poolSteps(p *poolGrowth) ([]step, error) {
	if p == nil {
		return nil, nil
	}
	t, err := targetOf(p.group.Name, p.name)
	if err != nil {
		return nil, err
	}
	var steps []step
	if len(p.spares) > 0 {
		argv, err := sparesArgs(p)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{argv})
	}
	if p.debris != nil {
		steps = append(steps, step{debrisArgs(t, p)})
	}
	if p.home != nil {
		steps = append(steps, step{poolArgs(t, p)})
	}
	if p.ranges != nil {
		steps = append(steps, step{extendArgs(t, p.group, p.data, p.ranges)})
	}
	return steps, nil
}

// enlargeSteps are the commands that give a pool what it needs.
func enlargeSteps(p pool, n poolNeed) ([]step, error) {
	t, err := targetOf(p.group.Name, p.name)
	if err != nil {
		return nil, err
	}
	var steps []step
	if n.metadata > 0 {
		args := append(onDevices("lvextend", p.group), "--alloc", "normal", "--poolmetadatasize", "+"+kib(p.group.bytes(n.metadata)), "--", t.String())
		steps = append(steps, step{args})
	}
	if n.data > p.data {
		// LVM chooses where the metadata goes, so nothing is said of where the data goes if both grow.
		var ranges []peRange
		if n.metadata == 0 {
			ranges = linearRanges(p.group, n.data-p.data)
		}
		steps = append(steps, step{extendArgs(t, p.group, n.data, ranges)})
	}
	return steps, nil
}
