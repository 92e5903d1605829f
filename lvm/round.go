package lvm

import (
	"fmt"
	"strconv"
	"time"
)

// Round is a thin snapshot of a volume that is about to move, which pods still use: package move copies it to the target. No user sees it, and no
// volume begins as a copy of it. Like a snapshot, it counts in its pool with the size of its volume.
type Round struct {
	ID      ID // of its logical volume
	UUID    string
	Cluster string
	Group   VGName
	Pool    string
	State   VolumeState // creating, ready or comparing
	Size    Bytes       // of its device
	Created time.Time   // in whole seconds

	RoundSpec
}

// RoundSpec is a request for a round. It is comparable.
type RoundSpec struct {
	Move       string // identifies it, as Volume.Move does a hold
	Source     ID     // the volume
	SourceUUID string
	Number     int   // 1: the first one of its volume
	Before     Bytes // how much the round before it copied; 0: unknown
}

// StateComparing is the state of a round while the driver compares it with a later one: perhaps its pool has a metadata snapshot, which the driver
// has to release.
const StateComparing VolumeState = "comparing"

// roundPrefix begins the names of rounds only.
const roundPrefix = "r-"

// RoundName derives the name of a round's logical volume from what identifies it.
func RoundName(move string) string { return roundPrefix + move }

// The keys of a round's tags. An earlier version of the driver refuses the kind, and keeps the logical volume.
const (
	kindRound = "round"

	keySourceUUID = "sourceuuid"
	keyNumber     = "number"
	keyBefore     = "before"
)

// RoundTags encodes a round's tags.
func RoundTags(r Round) []string {
	return []string{
		EncodeTag(KeyVersion, TagVersion), EncodeTag(keyKind, kindRound), StateTag(r.State), EncodeTag(KeyCluster, r.Cluster), EncodeTag(keyMove, r.Move),
		EncodeTag(keySource, r.Source.LV), EncodeTag(keySourceUUID, r.SourceUUID),
		EncodeTag(keyNumber, strconv.Itoa(r.Number)), EncodeTag(keyBefore, strconv.FormatInt(int64(r.Before), 10)),
	}
}

func roundOf(g Group, lv LV, values map[string]string) *Round {
	return &Round{
		ID: ID{VG: g.UUID, LV: lv.Name}, UUID: lv.UUID, Cluster: values[KeyCluster], Group: g.Name, Pool: lv.Pool, State: VolumeState(values[keyState]),
		Size: g.Bytes(lv.Extents), Created: lv.Created,
		RoundSpec: RoundSpec{
			Move: values[keyMove], Source: sourceOf(g, values), SourceUUID: values[keySourceUUID],
			Number: int(bytesOf(values, keyNumber)), Before: bytesOf(values, keyBefore),
		},
	}
}

// checkRoundTags refuses tags of a round that this version cannot interpret.
func checkRoundTags(values map[string]string) error {
	state := VolumeState(values[keyState])
	switch {
	case state != StateCreating && state != StateReady && state != StateComparing:
		return fmt.Errorf("its state is %q", state)
	case values[KeyCluster] == "":
		return fmt.Errorf("has no %s tag", TagPrefix+KeyCluster)
	case !movePattern.MatchString(values[keyMove]):
		return fmt.Errorf("its %s tag says %q", TagPrefix+keyMove, values[keyMove])
	case values[keySource] == "" || values[keySourceUUID] == "":
		return fmt.Errorf("has no %s or no %s tag", TagPrefix+keySource, TagPrefix+keySourceUUID)
	}
	return nil
}

// AsRound is AsVolume for rounds.
func (lv LV) AsRound() (Round, bool) {
	if lv.Managed == nil || lv.Managed.Round == nil {
		return Round{}, false
	}
	return *lv.Managed.Round, true
}

// Rounds returns the rounds of a cluster in the group, in any state, in the order of their names.
func (g Group) Rounds(cluster string) (all []Round) {
	for _, lv := range g.LVs {
		if r, is := lv.AsRound(); is && r.Cluster == cluster {
			all = append(all, r)
		}
	}
	return all
}

// FindRound finds a round by its logical volume. KindNotFound: the group lacks it.
func (g Group) FindRound(id ID, uuid string) (Round, error) {
	for _, lv := range g.LVs {
		if r, is := lv.AsRound(); is && r.ID == id && r.UUID == uuid {
			return r, nil
		}
	}
	return Round{}, g.AbsentError("volume group %s has no round %s", g.Name, id.LV)
}

// NeedsRound reports whether a move needs a round of this group: its volume is there and moves, and has not been handed over. The driver removes any
// other one: its tags prove that it created it, and that no user's volume depends on it.
func (g Group) NeedsRound(r Round) bool {
	for _, v := range g.Volumes() {
		if v.ID == r.Source && v.UUID == r.SourceUUID && v.Cluster == r.Cluster {
			return v.State == StateMoving || v.State == StateReady && v.Record != ""
		}
	}
	return false
}
