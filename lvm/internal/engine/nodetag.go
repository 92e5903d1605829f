package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/lvmcmd"
)

// OtherNodeReason explains that another node uses the group, or a node of that name in another cluster; "" if none does, or the driver has
// no node name.
func (e *Engine) OtherNodeReason(g lvm.Group) string {
	if e.Config.Node == "" {
		return ""
	}
	node, tag := ownerTag(g, lvm.KeyNode, e.Config.Node)
	cluster := ""
	if tag == "" && e.Config.Cluster != "" { // a driver that only resumes devices does not know its cluster yet
		node = e.Config.Node
		cluster, tag = ownerTag(g, lvm.KeyCluster, e.Config.Cluster)
	}
	if tag == "" {
		return ""
	}
	if cluster != "" {
		node += " of the cluster " + cluster
	}
	return fmt.Sprintf("node %s uses it (tag %s), and two nodes that change one volume group destroy it; if that node no longer uses it, remove the tag: vgchange --deltag '%s' %s", node, tag, tag, g.Name)
}

// ownerTag returns the first of a group's tags with this key that has another value than ours, and the value.
func ownerTag(g lvm.Group, key, ours string) (value, tag string) {
	prefix := lvm.EncodeTag(key, "")
	for _, tag := range g.Tags {
		encoded, is := strings.CutPrefix(tag, prefix)
		if !is || tag == lvm.EncodeTag(key, ours) {
			continue
		}
		value, err := lvm.UnescapeTag(encoded)
		if err != nil {
			value = tag
		}
		return value, tag
	}
	return "", ""
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

// nodeTags returns the tags that the driver adds with its next change: this node's name, and its cluster, because another cluster may have a
// node of that name. LVM refuses them while a disk is missing.
func (e *Engine) nodeTags(g lvm.Group) (tags []string) {
	if e.Config.Node == "" || g.UUID == "" || slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.Missing || pv.Unresponsive }) {
		return nil
	}
	for _, owner := range [][2]string{{lvm.KeyNode, e.Config.Node}, {lvm.KeyCluster, e.Config.Cluster}} {
		tag := lvm.EncodeTag(owner[0], owner[1])
		if owner[1] != "" && len(tag) <= lvm.MaxTag && !slices.Contains(g.Tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// tagGroupWithNode adds this node's tags to a group before the driver's first change, and returns how many commits that took.
func (e *Engine) tagGroupWithNode(ctx context.Context, g lvm.Group) (commits int64) {
	tags := e.nodeTags(g)
	if len(tags) == 0 {
		return 0
	}
	argv := append(lvmcmd.OnDevices("vgchange", g), append(lvmcmd.AddTags(tags), "--", string(g.Name))...)
	e.Locks.NoteCommand(g.UUID, strings.Join(argv, " "))
	if _, err := e.runLVM(ctx, argv); err != nil {
		e.Log.Warn("cannot tag a volume group as used by this node; the next change retries", "vg", g.Name, "error", err)
		return 0
	}
	e.Log.Info("tagged a volume group as used by this node", "vg", g.Name, "tags", tags)
	return 1
}
