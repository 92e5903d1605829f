package lvmtest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// guardWords are the forms of a selection that the driver uses, beside the number of disks that are not there: this volume,
// this volume in a group at that commit, this volume in that state, those of these volumes that are in that state, and those that were made while a thin pool was.
var guardWords = regexp.MustCompile(`^(?:vg_missing_pv_count=([0-9]+) && )?(?:vg_seqno=([0-9]+) && )?(?:lv_uuid=([A-Za-z0-9-]{38})(?: && lv_tags=\{([^{}]+)\})?|lv_tags=\{([^{}]+)\} && \((lv_uuid=[A-Za-z0-9-]{38}(?: \|\| lv_uuid=[A-Za-z0-9-]{38})*)\)|lv_host=pool\.nodelvm\.io && \((lv_uuid=[A-Za-z0-9-]{38}(?: \|\| lv_uuid=[A-Za-z0-9-]{38})*)\))$`)

// unseen lists the disks of the group that are not there, or that the command may not look at.
func (g *group) unseen(l line) (list []*lvm.PV) {
	devices := strings.Split(l.values["--devices"], ",")
	for i := range g.PVs {
		if pv := &g.PVs[i]; pv.Missing || !slices.Contains(devices, pv.Device) {
			list = append(list, pv)
		}
	}
	return list
}

// mark marks the disks that a command does not see as missing, as its commit does.
func (g *group) mark(l line) {
	for _, pv := range g.unseen(l) {
		if !pv.Missing {
			pv.Missing, pv.ReappearedDevice, pv.Device = true, pv.Device, ""
		}
		pv.MissingFlag = true
	}
}

// selects tells whether a selection, if there is one, takes this volume.
func (n *Node) selects(g *group, l line, lv lvm.LV) (bool, *failure) {
	selection, there := l.values["-S"]
	if !there {
		return true, nil
	}
	m := guardWords.FindStringSubmatch(selection)
	if m == nil {
		return false, &failure{exitArguments, "Selection syntax error at '" + selection + "'."}
	}
	if m[1] != "" && m[1] != strconv.Itoa(len(g.unseen(l))) {
		return false, nil
	}
	if m[2] != "" && m[2] != strconv.FormatInt(g.Seqno, 10) {
		return false, nil
	}
	tag, uuids := m[4]+m[5], []string{m[3]}
	if several := m[6] + m[7]; several != "" {
		uuids = strings.Split(strings.ReplaceAll(several, "lv_uuid=", ""), " || ")
	}
	if m[7] != "" {
		return slices.Contains(uuids, lv.UUID) && n.spares[lv.UUID], nil
	}
	return slices.Contains(uuids, lv.UUID) && (tag == "" || slices.Contains(lv.Tags, tag)), nil
}

// volume finds the one volume that an argument names, in a group that is all there.
func (n *Node) volume(arg string, l line) (*group, *lvm.LV, *failure) {
	g, lv, f := n.anyVolume(arg)
	if f == nil {
		_, f = n.visible(g.Name, l)
	}
	return g, lv, f
}

// anyVolume finds the one volume that an argument names; a whole group is never meant here.
func (n *Node) anyVolume(arg string) (*group, *lvm.LV, *failure) {
	vg, name, ok := strings.Cut(arg, "/")
	if !ok || !nameWord.MatchString(vg) || !nameWord.MatchString(name) {
		return nil, nil, &failure{exitArguments, "this fake works on volumes that are named in full, not on " + arg}
	}
	g := n.group(vg)
	if g == nil {
		return nil, nil, failed("Volume group %q not found", vg)
	}
	if g.Problem != "" {
		return nil, nil, failed("Volume group %s cannot be changed: %s", vg, g.Problem)
	}
	lv := g.find(name)
	if lv == nil || lv.Hidden {
		return nil, nil, failed("Failed to find logical volume %q", arg)
	}
	return g, lv, nil
}

// onVolumes does something to each of the volumes that a command names and its selection takes; the first failure ends
// it. None selected is not a failure.
func (n *Node) onVolumes(l line, do func(*group, *lvm.LV, line) *failure) *failure {
	if len(l.positional) == 0 {
		return &failure{exitArguments, "no volume is named"}
	}
	for _, arg := range l.positional {
		g, lv, f := n.anyVolume(arg)
		if f != nil {
			return f
		}
		taken, f := n.selects(g, l, *lv)
		if f == nil && taken {
			f = do(g, lv, l)
		}
		if f != nil {
			return f
		}
	}
	return nil
}

func (n *Node) lvchange(g *group, lv *lvm.LV, l line) *failure {
	if len(l.add)+len(l.del) > 0 {
		tags := slices.DeleteFunc(slices.Clone(lv.Tags), func(t string) bool { return slices.Contains(l.del, t) })
		for _, t := range l.add {
			if !slices.Contains(tags, t) {
				tags = append(tags, t)
			}
		}
		lv.Tags = tags
		g.mark(l)
		g.commit()
	}
	if when := l.values["--errorwhenfull"]; l.has("--errorwhenfull") {
		if lv.Thin == nil || when != "y" && when != "n" {
			return &failure{exitArguments, "lvchange: --errorwhenfull is for thin pools, y or n"}
		}
		g.commit()
	}
	switch d := n.device(n.path(g, lv.UUID)); {
	case l.has("--refresh") && d != nil:
		d.suspended = false
	case l.values["-a"] == "y" && lv.Pool != "" && !n.kernelOf(g.find(lv.Pool)).devices[n.number(g, lv)]:
		return failed("device-mapper: reload ioctl on failed: No data available")
	case l.values["-a"] == "y" && !n.halved:
		n.activate(g, lv.Name)
	case l.values["-a"] == "n" && d != nil:
		return n.deactivate(g, lv.Name)
	}
	return nil
}

func (n *Node) lvremove(g *group, lv *lvm.LV, l line) *failure {
	if !l.has("-y") {
		return failed("Do you really want to remove? [y/n]: [n]")
	}
	if users := g.users(lv.Name); len(users) > 0 {
		return failed("this fake does not remove %s, which %v are made of", lv.Name, users)
	}
	if f := n.deactivate(g, lv.Name); f != nil {
		return f
	}
	if n.halved {
		return nil
	}
	g.mark(l)
	if lv.Pool != "" {
		return n.forget(g, lv.Name, l.has("-ff"))
	}
	g.drop(lv.Name)
	if !slices.ContainsFunc(g.LVs, func(lv lvm.LV) bool { return lv.Thin != nil }) {
		g.drop(spareName) // the spare goes with the last pool
	}
	g.commit()
	return nil
}
