package lvm

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MaxGroupMembers is the largest number of snapshots in a group snapshot.
const MaxGroupMembers = 32

// GroupSnapshotSpec is a request for snapshots of several thin volumes, all of one moment.
type GroupSnapshotSpec struct {
	Name    string // CSI's name of the group snapshot, as in Spec
	Sources []ID   // the volumes: 1 to MaxGroupMembers, all different
}

// ID returns the ID that the group snapshot gets, in the volume group of its first member: that of the least source. There must be a source.
func (s GroupSnapshotSpec) ID() ID {
	least := slices.MinFunc(s.Sources, func(a, b ID) int { return strings.Compare(a.String(), b.String()) })
	return ID{VG: least.VG, LV: GroupSnapshotName(s.Name)}
}

// GroupSnapshot is snapshots of one moment.
type GroupSnapshot struct {
	ID      ID
	Name    string
	Members []Snapshot // by source
	State   VolumeState
	Created time.Time // of the first member, in whole seconds
}

// Handles returns the handles of the members, in ascending order.
func (s GroupSnapshot) Handles() (handles []string) {
	for _, sn := range s.Members {
		handles = append(handles, sn.ID.String())
	}
	slices.Sort(handles)
	return handles
}

// GroupMember is what a snapshot's tags say of its group snapshot; zero for a snapshot without one. One member, the first, stands for the
// whole: its state is the group snapshot's, it becomes ready last, and it is removed last.
type GroupMember struct {
	Of ID // the group snapshot: the volume group of its first member, and a name that is no logical volume's

	// The fields of the first member.
	Name   string // GroupSnapshotSpec.Name
	Count  int    // how many members there are; 0: this is not the first
	Others string // UUIDs of the other volume groups with members, joined with colons
}

// IsFirst reports whether this member stands for the group snapshot.
func (m GroupMember) IsFirst() bool { return m.Count > 0 }

// OtherGroups returns the UUIDs in Others.
func (m GroupMember) OtherGroups() (uuids []VGUUID) {
	for uuid := range strings.SplitSeq(m.Others, ":") {
		if uuid != "" {
			uuids = append(uuids, VGUUID(uuid))
		}
	}
	return uuids
}

// groupSnapshotPrefix begins the names of group snapshots only.
const groupSnapshotPrefix = "g-"

// GroupSnapshotName derives the name of a group snapshot in its handle. It differs from that of any volume or snapshot.
func GroupSnapshotName(name string) string {
	sum := sha256.Sum256([]byte(name))
	return groupSnapshotPrefix + hex.EncodeToString(sum[:16])
}

// MemberName derives the name of a group snapshot's member, as in SnapshotSpec, from the name in the group snapshot's handle.
func MemberName(group string, member int) string { return group + "/" + strconv.Itoa(member) }

// IsGroupSnapshot reports whether the handle is a group snapshot's, by the name's prefix.
func (id ID) IsGroupSnapshot() bool { return strings.HasPrefix(id.LV, groupSnapshotPrefix) }

// The keys of a member's tags. An earlier version of the driver ignores them: the member is an ordinary snapshot to it.
const (
	keyGroupSnapshot = "groupsnapshot"      // GroupMember.Of
	keyGroupName     = "groupsnapshot.name" // the other three are the first member's
	keyGroupCount    = "groupsnapshot.members"
	keyGroupOthers   = "groupsnapshot.groups"
)

func (m GroupMember) tags() (tags []string) {
	if m.Of == (ID{}) {
		return nil
	}
	tags = append(tags, EncodeTag(keyGroupSnapshot, m.Of.String()))
	if m.IsFirst() {
		tags = append(tags, EncodeTag(keyGroupName, m.Name), EncodeTag(keyGroupCount, strconv.Itoa(m.Count)))
	}
	if m.IsFirst() && m.Others != "" {
		tags = append(tags, EncodeTag(keyGroupOthers, m.Others))
	}
	return tags
}

// groupMemberOf ignores invalid tags: then the snapshot is one without a group snapshot.
func groupMemberOf(values map[string]string) GroupMember {
	of, err := ParseID(values[keyGroupSnapshot])
	if err != nil || !of.IsGroupSnapshot() {
		return GroupMember{}
	}
	m := GroupMember{Of: of}
	if n, err := strconv.Atoi(values[keyGroupCount]); err == nil && n > 0 && n <= MaxGroupMembers {
		m.Name, m.Count, m.Others = values[keyGroupName], n, values[keyGroupOthers]
	}
	return m
}

// FindGroupSnapshot finds a group snapshot, whatever its state. Its members are those of all groups that can be read: fewer than its
// first member counts, while another group is missing. KindNotLocal: the first member's volume group is not on this node; KindNotFound: the
// group lacks the first member; KindBusy: the reading is incomplete. Even then the members that exist are returned. The snapshots in a copy
// of a volume group (vgimportclone) have the tags of the originals, and are no members.
func (s State) FindGroupSnapshot(id ID) (GroupSnapshot, error) {
	found := GroupSnapshot{ID: id}
	var first *Snapshot
	for _, g := range s.Groups {
		members := g.membersOf(id)
		i := slices.IndexFunc(members, func(sn Snapshot) bool { return sn.Member.IsFirst() })
		if i >= 0 && g.UUID != id.VG {
			continue // the copy of a group
		}
		if i >= 0 {
			first = &members[i]
		}
		found.Members = append(found.Members, members...)
	}
	if first != nil { // of the others, this one knows the groups
		groups := append(first.Member.OtherGroups(), id.VG)
		found.Members = slices.DeleteFunc(found.Members, func(sn Snapshot) bool { return !slices.Contains(groups, sn.ID.VG) })
	}
	slices.SortFunc(found.Members, func(a, b Snapshot) int { return strings.Compare(a.Source.String(), b.Source.String()) })
	g, err := s.FindGroup(id.VG)
	if err != nil {
		return found, Errorf(KindNotLocal, "group snapshot %s: %w", id, err)
	}
	if first == nil {
		return found, g.AbsentError("volume group %s has no group snapshot %s", g.Name, id.LV)
	}
	found.Name, found.State, found.Created = first.Member.Name, first.State, first.Created
	return found, nil
}

// membersOf returns the snapshots of this group whose tags name a group snapshot.
func (g Group) membersOf(id ID) (members []Snapshot) {
	for _, sn := range g.Snapshots() {
		if sn.Member.Of == id {
			members = append(members, sn)
		}
	}
	return members
}

// First returns the member that stands for the group snapshot; nil if it is absent.
func (s GroupSnapshot) First() *Snapshot {
	for i := range s.Members {
		if s.Members[i].Member.IsFirst() {
			return &s.Members[i]
		}
	}
	return nil
}
