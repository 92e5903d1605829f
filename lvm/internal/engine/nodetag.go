package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// OtherNodeReason explains that another node uses the group; "" if none does, or the driver has no node name.
func (e *Engine) OtherNodeReason(g lvm.Group) string {
	if e.Config.Node == "" {
		return ""
	}
	for _, tag := range g.Tags {
		if strings.HasPrefix(tag, lvm.EncodeTag(lvm.KeyNode, "")) && tag != lvm.EncodeTag(lvm.KeyNode, e.Config.Node) {
			node, err := lvm.UnescapeTag(strings.TrimPrefix(tag, lvm.EncodeTag(lvm.KeyNode, "")))
			if err != nil {
				node = tag
			}
			return fmt.Sprintf("node %s uses it (tag %s), and two nodes that change one volume group destroy it; if that node no longer uses it, remove the tag: vgchange --deltag '%s' %s", node, tag, tag, g.Name)
		}
	}
	return ""
}

// withNodeProblems sets the problem of each group that another node uses.
func (e *Engine) withNodeProblems(s lvm.State) lvm.State {
	copied := false
	for i, g := range s.Groups {
		why := e.OtherNodeReason(g)
		if why == "" || g.Problem != "" {
			continue
		}
		if !copied { // other reads share them
			s.Groups, copied = slices.Clone(s.Groups), true
		}
		s.Groups[i].Problem = why
	}
	return s
}

// nodeTag returns the tag that the driver adds with its next change, "" for none. LVM refuses it while a disk is missing.
func (e *Engine) nodeTag(g lvm.Group) string {
	tag := lvm.EncodeTag(lvm.KeyNode, e.Config.Node)
	if e.Config.Node == "" || len(tag) > lvm.MaxTag || slices.Contains(g.Tags, tag) || g.UUID == "" || slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.Missing || pv.Unresponsive }) {
		return ""
	}
	return tag
}

// tagGroupWithNode adds this node's tag to a group before the driver's first change, and returns how many commits that took.
func (e *Engine) tagGroupWithNode(ctx context.Context, g lvm.Group) (commits int64) {
	tag := e.nodeTag(g)
	if tag == "" {
		return 0
	}
	argv := append(lvmcmd.OnDevices("vgchange", g), "--addtag", tag, "--", string(g.Name))
	e.Locks.NoteCommand(g.UUID, strings.Join(argv, " "))
	if _, err := e.runLVM(ctx, argv); err != nil {
		e.Log.Warn("cannot tag a volume group as used by this node; the next change retries", "vg", g.Name, "error", err)
		return 0
	}
	e.Log.Info("tagged a volume group as used by this node", "vg", g.Name, "tag", tag)
	return 1
}
