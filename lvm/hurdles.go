package lvm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// hurdles are the facts of a group that forbid changes in it. Both readers collect them; one function words them.
type hurdles struct {
	exported   bool
	shared     bool // needs lvmlockd or clvmd
	readOnly   bool
	fixed      bool // vgchange -x n
	systemID   string
	duplicates []string // sentences, one for each PV that stands on two devices
	shrunken   []string // sentences, one for each PV that its device is too small for
}

// problem words the first hurdle for Group.Problem; empty where there is none.
func (h hurdles) problem(name string) string {
	switch {
	case h.exported:
		return fmt.Sprintf("it is exported; vgimport %s takes it into use", name)
	case h.systemID != "":
		return fmt.Sprintf("it belongs to another host, by its system ID %q; vgchange --systemid '' %s gives it to any host", h.systemID, name)
	case h.shared:
		return "it is shared between hosts (lvmlockd), which a volume of one node cannot be"
	case h.readOnly:
		return "its permission is read-only"
	case h.fixed:
		return fmt.Sprintf("it is not resizeable; vgchange --resizeable y %s allows new volumes", name)
	case len(h.duplicates) > 0:
		return strings.Join(h.duplicates, "; ")
	}
	return strings.Join(h.shrunken, "; ")
}

func duplicateSentence(uuid string, devices ...string) string {
	slices.Sort(devices)
	return fmt.Sprintf("its physical volume %s stands on several devices (%s); take the copy away or give it a new identity with vgimportclone",
		uuid, strings.Join(devices, ", "))
}

func shrunkenSentence(device string, has, needs Bytes) string {
	return fmt.Sprintf("%s has %d bytes, its physical volume needs %d", device, has, needs)
}

// sortGroup brings PVs and LVs into one order, whatever the order of their source.
func sortGroup(g *Group) {
	slices.SortFunc(g.PVs, func(a, b PV) int { return strings.Compare(a.UUID, b.UUID) })
	slices.SortFunc(g.LVs, func(a, b LV) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(g.Tags)
	for i := range g.LVs {
		slices.Sort(g.LVs[i].Tags)
		slices.Sort(g.LVs[i].UsedBy)
	}
}

func sortState(s *State) {
	slices.SortFunc(s.Groups, func(a, b Group) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.UUID, b.UUID))
	})
	slices.Sort(s.Unread)
}
