package prepare

import (
	"context"
	"fmt"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/engine"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
	"github.com/nodelvm/nodelvm/lvm/internal/ondisk"
)

// joinSteps reads the disks again under the group's lock and plans the commands of join: an admin may have created or changed
// the group since the scan. A command whose --devices lacks a disk of the group would set that disk's MISSING flag.
func (p *preparing) joinSteps(ctx context.Context, d lvm.Declaration, before *lvm.Group, paths, tags []string) (lvm.Group, []lvmcmd.Step, error) {
	s, err := p.engine.ReadDisks(ctx)
	if err != nil {
		return lvm.Group{}, nil, err
	}
	p.state = s
	now, err := p.standing(d.Name)
	switch {
	case err != nil:
		return lvm.Group{}, nil, err
	case before == nil && now == nil:
		return lvm.Group{Name: d.Name}, []lvmcmd.Step{{Argv: lvmcmd.VGCreateArgs(d, p.engine.Config.Node, paths)}}, nil
	case before == nil || now == nil || now.UUID != before.UUID || len(now.PVs) != len(before.PVs):
		return lvm.Group{}, nil, lvm.Errorf(lvm.KindBusy, "another program created or renamed volume group %s, or changed its disks, during the device scan; the next scan retries", d.Name)
	}
	var steps []lvmcmd.Step
	if len(paths) > 0 {
		steps = append(steps, lvmcmd.Step{Argv: lvmcmd.VGExtendArgs(*now, paths)})
	}
	if len(tags) > 0 {
		steps = append(steps, lvmcmd.Step{Argv: lvmcmd.VGTagArgs(*now, paths, tags)})
	}
	return *now, steps, nil
}

// join creates the group from the devices, or extends it, and verifies that they are in it.
func (p *preparing) join(ctx context.Context, d lvm.Declaration, here *lvm.Group, taken []ondisk.Disk, tags []string) error {
	paths := make([]string, 0, len(taken))
	for _, device := range taken {
		paths = append(paths, device.Path)
	}
	if here != nil {
		unlock, err := p.engine.Locks.Acquire(ctx, here.UUID, "extending volume group "+string(d.Name))
		if err != nil {
			return err
		}
		defer unlock()
	}
	group, steps, err := p.joinSteps(ctx, d, here, paths, tags)
	if err != nil {
		return err
	}
	done, err := p.engine.Commit(ctx, engine.Change{Group: group, Steps: steps})
	if err != nil {
		return err
	}
	s, failure := done.State, done.Failure
	p.state = s
	i := slices.IndexFunc(s.Groups, func(g lvm.Group) bool { return g.Name == d.Name })
	for _, path := range paths {
		if i < 0 || !slices.ContainsFunc(s.Groups[i].PVs, func(pv lvm.PV) bool { return pv.Device == path }) {
			p.reports[path] = fmt.Sprintf("blank, but cannot be added to volume group %s; the next scan retries", d.Name)
			failure = lvm.Errorf(lvm.KindInternal, "cannot add %s to it: %w", path, engine.OrNoEffect(failure))
			continue
		}
		p.reports[path] = "added to volume group " + string(d.Name)
	}
	if failure != nil || i < 0 {
		return engine.OrNoEffect(failure)
	}
	p.engine.Log.Info("prepared a volume group", "vg", d.Name, "devices", paths, "tags", tags)
	return p.engine.Flush(s.Groups[i])
}
