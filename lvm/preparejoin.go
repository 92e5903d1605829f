package lvm

import (
	"context"
	"fmt"
	"slices"
)

// joinSteps reads the disks again, under the group's lock, and plans the commands of join: an admin may have made or changed
// the group since the disks were surveyed. A command whose --devices lacks a disk of the group would note that disk as missing.
func (p *preparing) joinSteps(ctx context.Context, d Declaration, before *Group, paths, tags []string) (Group, []step, error) {
	s, err := p.host.readRaw(ctx)
	if err != nil {
		return Group{}, nil, err
	}
	p.state = s
	now, err := p.standing(d.Name)
	switch {
	case err != nil:
		return Group{}, nil, err
	case before == nil && now == nil:
		return Group{Name: d.Name}, []step{{vgcreateArgs(d, p.host.cfg.Node, paths)}}, nil
	case before == nil || now == nil || now.UUID != before.UUID || len(now.PVs) != len(before.PVs):
		return Group{}, nil, Errorf(KindBusy, "volume group %s was made, renamed, or given other disks while this run looked at the devices; the next run goes on", d.Name)
	}
	var steps []step
	if len(paths) > 0 {
		steps = append(steps, step{vgextendArgs(*now, paths)})
	}
	if len(tags) > 0 {
		steps = append(steps, step{vgtagArgs(*now, paths, tags)})
	}
	return *now, steps, nil
}

// join makes the group of the devices, or adds them to it, and sees that they are in it.
func (p *preparing) join(ctx context.Context, d Declaration, here *Group, taken []disk, tags []string) error {
	paths := make([]string, 0, len(taken))
	for _, device := range taken {
		paths = append(paths, device.path)
	}
	if here != nil {
		unlock, err := p.host.lockGroup(ctx, here.UUID, "enlarging volume group "+d.Name)
		if err != nil {
			return err
		}
		defer unlock()
	}
	group, steps, err := p.joinSteps(ctx, d, here, paths, tags)
	if err != nil {
		return err
	}
	failure := p.host.run(ctx, group, steps)
	s, err := p.host.readRaw(ctx)
	if err != nil {
		return err
	}
	p.state = s
	i := slices.IndexFunc(s.Groups, func(g Group) bool { return g.Name == d.Name })
	for _, path := range paths {
		if i < 0 || !slices.ContainsFunc(s.Groups[i].PVs, func(pv PV) bool { return pv.Device == path }) {
			p.told[path] = fmt.Sprintf("blank, but volume group %s could not take it; the next run tries again", d.Name)
			failure = Errorf(KindInternal, "%s could not be made a part of it: %w", path, orNothing(failure))
			continue
		}
		p.told[path] = "made a part of volume group " + d.Name
	}
	if failure != nil || i < 0 {
		return orNothing(failure)
	}
	p.host.log.Info("a volume group was prepared", "vg", d.Name, "devices", paths, "tags", tags)
	return p.host.flush(s.Groups[i])
}
