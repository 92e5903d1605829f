package lvmtest

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// guardWords are the forms of selections that the driver uses, apart from the number of missing disks. They select one volume,
// at a commit of its group or in a state; several volumes in a state; or volumes created together with a thin pool.
var guardWords = regexp.MustCompile(`^(?:vg_missing_pv_count=([0-9]+) && )?(?:vg_seqno=([0-9]+) && )?(?:lv_uuid=([A-Za-z0-9-]{38})(?: && lv_tags=\{([^{}]+)\})?|lv_tags=\{([^{}]+)\} && \((lv_uuid=[A-Za-z0-9-]{38}(?: \|\| lv_uuid=[A-Za-z0-9-]{38})*)\)|lv_host=pool\.nodelvm\.io && \((lv_uuid=[A-Za-z0-9-]{38}(?: \|\| lv_uuid=[A-Za-z0-9-]{38})*)\))$`)

// unseen lists the disks of the group that are missing, or that the command's --devices lacks.
func (g *group) unseen(l line) (list []*lvm.PV) {
	devices := strings.Split(l.values["--devices"], ",")
	for i := range g.PVs {
		if pv := &g.PVs[i]; pv.Missing || !slices.Contains(devices, pv.Device) {
			list = append(list, pv)
		}
	}
	return list
}

// mark sets the MISSING flag of the disks that a command does not see, as its commit does.
func (g *group) mark(l line) {
	for _, pv := range g.unseen(l) {
		if !pv.Missing {
			pv.Missing, pv.ReappearedDevice, pv.Device = true, pv.Device, ""
		}
		pv.MissingFlag = true
	}
}

// selects reports whether the selection, if any, matches this volume.
func (n *Node) selects(g *group, l line, lv lvm.LV) (bool, *failure) {
	selection, there := l.values["-S"]
	if !there {
		return true, nil
	}
	if rest, either, there := cutEither(selection); there {
		if !slices.ContainsFunc(either, func(tag string) bool { return slices.Contains(lv.Tags, tag) }) {
			return false, nil
		}
		selection = rest
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

// eitherWords is the end of a selection of volumes that have one of two tags.
var eitherWords = regexp.MustCompile(`^(.*) && \(lv_tags=\{([^{}]+)\} \|\| lv_tags=\{([^{}]+)\}\)$`)

func cutEither(selection string) (rest string, either []string, there bool) {
	m := eitherWords.FindStringSubmatch(selection)
	if m == nil {
		return selection, nil, false
	}
	return m[1], m[2:], true
}

// volume finds the volume that an argument names, in a group without missing disks.
func (n *Node) volume(arg string, l line) (*group, *lvm.LV, *failure) {
	g, lv, f := n.anyVolume(arg)
	if f == nil {
		_, f = n.visible(string(g.Name), l)
	}
	return g, lv, f
}

// anyVolume finds the volume that an argument names; a group alone is refused.
func (n *Node) anyVolume(arg string) (*group, *lvm.LV, *failure) {
	vg, name, ok := strings.Cut(arg, "/")
	if !ok || !nameWord.MatchString(vg) || !nameWord.MatchString(name) {
		return nil, nil, &failure{exitArguments, "this fake needs the full name of a volume, not " + arg}
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

// onVolumes runs a function on each named volume that the selection matches, up to the first failure. If none matches, that is
// not a failure.
func (n *Node) onVolumes(l line, do func(*group, *lvm.LV, line) *failure) *failure {
	if len(l.positional) == 0 {
		return &failure{exitArguments, "no volume named"}
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

// permit sets LVM's permission of a volume. LVM refuses to set the one that the volume has.
func (n *Node) permit(lv lvm.LV, to string) *failure {
	switch readOnly := n.readOnly[lv.UUID]; {
	case to == "r" && !readOnly, to == "rw" && readOnly:
		n.readOnly[lv.UUID] = !readOnly
		return nil
	case to == "r" || to == "rw":
		return failed("Logical volume %s is already %s", lv.Name, to)
	}
	return &failure{exitArguments, "lvchange: invalid argument for --permission: " + to}
}

func (n *Node) lvchange(g *group, lv *lvm.LV, l line) *failure {
	if l.has("-p") {
		if f := n.permit(*lv, l.values["-p"]); f != nil {
			return f
		}
	}
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
	if l.values["-a"] == "y" && (lv.Pool != "" || lv.Thin != nil) {
		if f := cmp.Or(n.mismatched(g, cmp.Or(lv.Pool, lv.Name)), n.blocked(g, cmp.Or(lv.Pool, lv.Name))); f != nil {
			return f
		}
	}
	switch d := n.device(n.path(g, lv.UUID)); {
	case l.has("--refresh") && d != nil:
		d.suspended = false
		n.mapPresent(g, lv.Name)
	case l.values["-a"] == "y" && n.skipped[lv.UUID] && !l.has("-K"):
		return nil
	case l.values["-a"] == "y" && lv.Pool != "" && !n.kernelOf(g.find(lv.Pool)).devices[n.number(g, lv)]:
		return failed("device-mapper: reload ioctl on failed: No data available")
	case l.values["-a"] == "y" && lv.Pool != "" && d == nil && n.failedPool(g, lv.Pool):
		return failed("device-mapper: reload ioctl on failed: Invalid argument")
	case l.values["-a"] == "y" && !n.halved:
		n.activate(g, lv.Name)
	case l.values["-a"] == "n" && (d != nil || lv.Thin != nil):
		return n.deactivate(g, lv.Name)
	}
	return nil
}

func (n *Node) lvremove(g *group, lv *lvm.LV, l line) *failure {
	if !l.has("-y") {
		return failed("Do you really want to remove? [y/n]: [n]")
	}
	if users := g.users()[lv.Name]; len(users) > 0 {
		return failed("this fake does not remove %s, a part of %v", lv.Name, users)
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
		g.drop(spareName) // the last pool's removal removes the spare
	}
	g.commit()
	return nil
}
