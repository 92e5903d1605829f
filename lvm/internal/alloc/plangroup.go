package alloc

import (
	"errors"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// GroupsOf returns the volume groups of a class. If two have its name, it returns both, and CheckAllocatable refuses them.
func GroupsOf(s lvm.State, class lvm.Class) ([]lvm.Group, error) {
	if err := lvm.CheckGroup(class.Group); err != nil {
		return nil, err
	}
	tag, isTag := strings.CutPrefix(class.Group, "@")
	var groups []lvm.Group
	for _, g := range s.Groups {
		if isTag && slices.Contains(g.Tags, tag) || !isTag && string(g.Name) == class.Group {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return nil, noGroup(class)
	}
	return groups, nil
}

// ErrNoGroup is in the chain of the error for a class without a volume group on this node.
var ErrNoGroup = errors.New("no such volume group")

func noGroup(class lvm.Class) error {
	if tag, isTag := strings.CutPrefix(class.Group, "@"); isTag {
		return lvm.Errorf(lvm.KindInsufficientCapacity, "%w: no group on this node has the tag %q (add it with vgchange --addtag %s GROUP)", ErrNoGroup, tag, tag)
	}
	return lvm.Errorf(lvm.KindInsufficientCapacity, "%w: no group on this node has the name %q", ErrNoGroup, class.Group)
}
