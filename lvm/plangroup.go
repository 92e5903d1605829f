package lvm

import (
	"errors"
	"slices"
	"strings"
)

// groupsOf finds the groups behind a class. A name that two groups carry is no answer at all.
func groupsOf(s State, class Class) ([]Group, error) {
	if err := checkGroup(class.Group); err != nil {
		return nil, err
	}
	tag, isTag := strings.CutPrefix(class.Group, "@")
	var groups []Group
	for _, g := range s.Groups {
		if isTag && slices.Contains(g.Tags, tag) || !isTag && g.Name == class.Group {
			groups = append(groups, g)
		}
	}
	if len(groups) == 0 {
		return nil, noGroup(class)
	}
	return groups, nil
}

// errNoGroup marks the refusal of a class that has no group on this node.
var errNoGroup = errors.New("no such volume group")

func noGroup(class Class) error {
	if tag, isTag := strings.CutPrefix(class.Group, "@"); isTag {
		return Errorf(KindInsufficientCapacity, "%w: none on this node carries the tag %q (vgchange --addtag %s GROUP gives it)", errNoGroup, tag, tag)
	}
	return Errorf(KindInsufficientCapacity, "%w: this node has none named %q", errNoGroup, class.Group)
}
