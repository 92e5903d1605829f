package lvm

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
)

// Managed is what the driver's tags say of a logical volume. One of Volume, Snapshot, Round and Pool is set, or none if Invalid is.
type Managed struct {
	Volume   *Volume
	Snapshot *Snapshot
	Round    *Round
	Pool     bool   // a thin pool that the driver created, for any cluster: the driver may extend it
	Invalid  string // a sentence: what is wrong with the tags. The driver never changes such a logical volume

	Name    string // the name tag, also of a logical volume whose other tags are invalid
	Cluster string // the same for the cluster tag
}

// ManagedVolumeOf returns what the tags of this volume say.
func ManagedVolumeOf(v Volume) *Managed {
	return &Managed{Volume: &v, Name: v.Name, Cluster: v.Cluster}
}

// Decode sets Managed of each logical volume. A reader calls it once for each metadata text that it parses.
func (g *Group) Decode() {
	values := map[string]string{} // of one logical volume after the other
	for i := range g.LVs {
		clear(values)
		g.LVs[i].Managed = decodeTags(*g, g.LVs[i], values)
	}
}

// decodeTags returns nil for a logical volume without the driver's tags. It uses the empty map values.
func decodeTags(g Group, lv LV, values map[string]string) *Managed {
	if lv.Hidden && lv.Thin == nil {
		return nil // a sub-LV inherits the volume's tags (an admin's lvconvert)
	}
	ours, err := addValues(values, lv.Tags)
	if !ours {
		return nil
	}
	m := &Managed{Name: values[keyName], Cluster: values[KeyCluster]}
	if err == nil {
		err = m.decode(g, lv, values)
	}
	if err != nil {
		*m = Managed{Name: m.Name, Cluster: m.Cluster, Invalid: fmt.Sprintf("logical volume %s/%s has tags of this driver, but %v; the driver ignores it: correct its tags (lvchange --addtag, --deltag; compare with lvs -o lv_tags), or remove all %s* tags, and it is unmanaged", g.Name, lv.Name, err, TagPrefix)}
	}
	return m
}

func (m *Managed) decode(g Group, lv LV, values map[string]string) error {
	if err := checkTags(values); err != nil {
		return err
	}
	switch values[keyKind] {
	case kindPool:
		m.Pool = true
		return nil
	case kindSnapshot:
		m.Snapshot = snapshotOf(g, lv, values)
		return nil
	case kindRound:
		m.Round = roundOf(g, lv, values)
		return nil
	}
	v, err := volumeOf(g, lv, values)
	m.Volume = &v
	return err
}

func volumeOf(g Group, lv LV, values map[string]string) (v Volume, err error) {
	v = Volume{
		ID:      ID{VG: g.UUID, LV: handleName(lv, values)},
		UUID:    lv.UUID,
		Name:    cmp.Or(values[keyName], lv.Name),
		Claim:   values[keyClaim],
		Cluster: values[KeyCluster],
		Group:   g.Name,
		State:   VolumeState(values[keyState]),
		Source:  sourceOf(g, values),
		Block:   values[keyMode] == modeBlock,
		Access:  Access(values[keyAccess]),
		Wiped:   bytesOf(values, keyWiped),
		Move:    values[keyMove],
		Copied:  bytesOf(values, keyCopied),
		Base:    values[keyBase],
	}
	if values[keyRecord+"0"] != "" { // an agent notes it before the volume is a side of a move, and it stays
		v.Record = recordOf(values)
	}
	if v.Class, err = classOf(lv, values); err != nil {
		return v, err
	}
	if v.FormatMark, err = formatMarkOf(values); err != nil {
		return v, err
	}
	v.Limits, v.LimitsProblem = limitsOf(values)
	v.Class.Group = string(g.Name)
	if v.Size = v.Class.DataSize(g.Bytes(lv.Extents)); v.Size == 0 && v.Class.Encryption != EncryptionNone {
		return v, fmt.Errorf("is tagged as encrypted and has only %s, of which the LUKS header needs %s", g.Bytes(lv.Extents), LUKSHeaderSize)
	}
	return v, nil
}

func snapshotOf(g Group, lv LV, values map[string]string) *Snapshot {
	encryption := Encryption(values[keyEncryption])
	return &Snapshot{
		ID:      ID{VG: g.UUID, LV: handleName(lv, values)},
		UUID:    lv.UUID,
		Name:    cmp.Or(values[keyName], lv.Name),
		Cluster: values[KeyCluster],
		Group:   g.Name,
		Pool:    lv.Pool,
		Source:  sourceOf(g, values),
		State:   VolumeState(values[keyState]),
		Size:    Class{Encryption: encryption}.DataSize(g.Bytes(lv.Extents)),
		Created: lv.Created,

		Encryption: encryption,
		Member:     groupMemberOf(values),
		Claim:      values[keyClaim],
	}
}

// checkTags refuses tags that this version cannot interpret.
func checkTags(values map[string]string) error {
	version, there := values[KeyVersion]
	_, owned := values[KeyCluster]
	state, kind := VolumeState(values[keyState]), values[keyKind]
	still := state == StateCreating || state == StateZeroing || state == StateReady || state == StateDeleting // no side of a move
	switch {
	case !there:
		return fmt.Errorf("has no %s tag", TagPrefix+KeyVersion)
	case version != TagVersion:
		return fmt.Errorf("in format %q, and this program reads format %s", version, TagVersion)
	case kind == kindPool:
		return nil
	case kind == kindRound:
		return checkRoundTags(values)
	case kind != "" && kind != kindSnapshot:
		return fmt.Errorf("its kind is %q", kind)
	case state == "":
		return fmt.Errorf("has no %s tag", TagPrefix+keyState)
	case !still && (kind == kindSnapshot || !state.IsMove()):
		return fmt.Errorf("its state is %q", state)
	case !still && !movePattern.MatchString(values[keyMove]):
		return fmt.Errorf("its state is %q, and its %s tag says %q", state, TagPrefix+keyMove, values[keyMove])
	case !owned:
		return fmt.Errorf("has no %s tag", TagPrefix+KeyCluster)
	case values[keyLV] != "" && !NamePattern.MatchString(values[keyLV]):
		return fmt.Errorf("its %s tag says %q", TagPrefix+keyLV, values[keyLV])
	case values[keyEncryption] != "" && values[keyEncryption] != string(EncryptionLUKS2):
		return fmt.Errorf("its %s tag says %q, which this version does not know", TagPrefix+keyEncryption, values[keyEncryption])
	case values[keyAccess] != "" && !Access(values[keyAccess]).known():
		return fmt.Errorf("its %s tag says %q, which this version does not know", TagPrefix+keyAccess, values[keyAccess])
	case kind == kindSnapshot && values[keySource] == "":
		return fmt.Errorf("has no %s tag", TagPrefix+keySource)
	}
	return nil
}

func sourceOf(g Group, values map[string]string) ID {
	if values[keySource] == "" {
		return ID{}
	}
	if other, err := ParseID(values[keySource]); err == nil { // no logical volume's name has a slash
		return other
	}
	return ID{VG: g.UUID, LV: values[keySource]}
}

func formatMarkOf(values map[string]string) (Bytes, error) {
	text, there := values[keyFormatMark]
	if !there {
		return 0, nil
	}
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at < FormatMarkSize || at%FormatMarkSize != 0 {
		return 0, fmt.Errorf("its %s tag says %q", TagPrefix+keyFormatMark, text)
	}
	return Bytes(at), nil
}

// bytesOf ignores an invalid tag: the driver zeroes or copies the volume from its beginning.
func bytesOf(values map[string]string, key string) Bytes {
	if values[key] == "" {
		return 0 // without an error, which would be garbage for most volumes
	}
	n, err := strconv.ParseInt(values[key], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return Bytes(n)
}

// limitsOf ignores an invalid tag, so that the volume stays usable; problem says what is wrong with it.
func limitsOf(values map[string]string) (l Limits, problem string) {
	text, there := values[keyLimits]
	if !there {
		return Limits{}, ""
	}
	text = strings.TrimSpace(text)
	l, err := decodeLimits(text)
	if err != nil {
		return Limits{}, fmt.Sprintf("its %s tag says %q: %v", TagPrefix+keyLimits, text, err)
	}
	return l, ""
}

// classOf decodes the class, without its group, and applies the rules for requested classes, so that no plan meets any other.
func classOf(lv LV, values map[string]string) (Class, error) {
	class := Class{Group: "any"}
	for _, p := range Parameters {
		text, there := values[p.Tag]
		if p.Tag == "" || !there {
			continue
		}
		if err := p.Set(&class, text); err != nil {
			return Class{}, fmt.Errorf("its %s tag says %q", TagPrefix+p.Tag, text)
		}
	}
	if class.Layout == LayoutThin {
		class.Pool = cmp.Or(lv.Pool, DefaultPool) // only a killed lvcreate leaves it without a pool
	}
	class, err := CheckClass(class)
	if err != nil {
		return Class{}, fmt.Errorf("its tags are invalid: %w", err)
	}
	return class, nil
}

// AsVolume returns the managed volume that a logical volume is; false for any other, also for one with invalid tags.
func (lv LV) AsVolume() (Volume, bool) {
	if lv.Managed == nil || lv.Managed.Volume == nil {
		return Volume{}, false
	}
	return *lv.Managed.Volume, true
}

// AsSnapshot is AsVolume for snapshots.
func (lv LV) AsSnapshot() (Snapshot, bool) {
	if lv.Managed == nil || lv.Managed.Snapshot == nil {
		return Snapshot{}, false
	}
	return *lv.Managed.Snapshot, true
}

// IsManagedPool reports whether this driver, in any cluster, created the thin pool: then the driver may extend it.
func (lv LV) IsManagedPool() bool { return lv.Managed != nil && lv.Managed.Pool }

// CheckTags returns an error (KindInternal) for a logical volume with invalid tags of the driver.
func (lv LV) CheckTags() error {
	if lv.Managed == nil || lv.Managed.Invalid == "" {
		return nil
	}
	return Errorf(KindInternal, "%s", lv.Managed.Invalid)
}

// CheckTags joins the errors of all logical volumes with invalid tags of the driver.
func (s State) CheckTags() (err error) {
	for _, g := range s.Groups {
		for _, lv := range g.LVs {
			err = errors.Join(err, lv.CheckTags())
		}
	}
	return err
}

// Volumes yields the managed volumes, in any state and of any cluster, with their logical volumes.
func (g Group) Volumes() iter.Seq2[LV, Volume] {
	return func(yield func(LV, Volume) bool) {
		for _, lv := range g.LVs {
			if v, is := lv.AsVolume(); is && !yield(lv, v) {
				return
			}
		}
	}
}

// Snapshots is Volumes for snapshots.
func (g Group) Snapshots() iter.Seq2[LV, Snapshot] {
	return func(yield func(LV, Snapshot) bool) {
		for _, lv := range g.LVs {
			if sn, is := lv.AsSnapshot(); is && !yield(lv, sn) {
				return
			}
		}
	}
}
