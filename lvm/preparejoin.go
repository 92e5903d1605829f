package lvm

import "context"

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
		return Group{Name: d.Name}, []step{{vgcreateArgs(d, paths)}}, nil
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
