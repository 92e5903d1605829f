package lvm

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// What the driver must remember of a volume stands in LVM tags of its logical volume, `nodelvm.KEY=VALUE`. LVM takes
// letters, digits and _+.-/=!:&# in a tag, at most 1024 characters of them (lvm(8), "Tags").
const (
	tagPrefix  = "nodelvm."
	tagVersion = "1"
	maxTag     = 1024
)

// tagKeys are the keys of format version 1 in the order in which they are written.
const (
	keyVersion = "v"
	keyState   = "state"
	keyCluster = "cluster"
	keyName    = "name"
	keyClaim   = "claim"
	keyWipe    = "wipe"
	keyLayout  = "layout"
)

// tagsOf encodes everything that a volume's tags must say. A claim too long for a tag is left out: it is for people
// only, and Kubernetes has none that long.
func tagsOf(v Volume) []string {
	tags := []string{
		encodeTag(keyVersion, tagVersion),
		stateTag(v.State),
		encodeTag(keyCluster, v.Cluster),
		encodeTag(keyName, v.Name),
		encodeTag(keyWipe, string(v.Class.Wipe)),
		encodeTag(keyLayout, string(v.Class.Layout)),
	}
	if claim := encodeTag(keyClaim, v.Claim); v.Claim != "" && len(claim) <= maxTag {
		tags = append(tags, claim)
	}
	return tags
}

// stateTag is the one tag of a volume that ever changes.
func stateTag(s VolumeState) string { return encodeTag(keyState, string(s)) }

// volumeOf reads a volume back from its LV. ours is false for an LV without our tags. An error means that it bears our
// mark and cannot be read: such an LV is never touched.
func volumeOf(g Group, lv LV) (v Volume, ours bool, err error) {
	if lv.Hidden {
		return Volume{}, false, nil // a part of a volume inherits its tags (an admin's lvconvert)
	}
	values, err := decodeTags(lv.Tags)
	if len(values) == 0 && err == nil {
		return Volume{}, false, nil
	}
	refuse := func(format string, args ...any) (Volume, bool, error) {
		return Volume{}, true, Errorf(KindInternal, "logical volume %s/%s is marked as ours, but %s; it is left alone",
			g.Name, lv.Name, fmt.Sprintf(format, args...))
	}
	if err != nil {
		return refuse("%v", err)
	}
	if version, there := values[keyVersion]; version != tagVersion {
		if !there {
			return refuse("has no %s tag", tagPrefix+keyVersion)
		}
		return refuse("in format %q, and this program reads format %s", version, tagVersion)
	}
	v = Volume{
		ID:      ID{VG: g.UUID, LV: lv.Name},
		UUID:    lv.UUID,
		Name:    values[keyName],
		Claim:   values[keyClaim],
		Cluster: values[keyCluster],
		Group:   g.Name,
		Class:   Class{Group: g.Name, Layout: Layout(values[keyLayout]), Wipe: Wipe(values[keyWipe])},
		State:   VolumeState(values[keyState]),
		Size:    Bytes(lv.Extents) * g.ExtentSize,
	}
	switch {
	case v.Name == "":
		return refuse("has no name tag")
	case v.State != StateCreating && v.State != StateReady && v.State != StateDeleting:
		return refuse("its state is %q", v.State)
	case v.Class.Wipe != WipeZero && v.Class.Wipe != WipeNone:
		return refuse("its wipe tag says %q", v.Class.Wipe)
	case v.Class.Layout != LayoutLinear:
		return refuse("its layout is %q", v.Class.Layout)
	}
	return v, true, nil
}

// snapshotOf reads a snapshot back from its LV. ours is false for any other LV, volumes of ours included; an error is as
// with volumeOf.
func snapshotOf(g Group, lv LV) (sn Snapshot, ours bool, err error) {
	return Snapshot{}, false, nil
}

// decodeTags answers the values of our tags by key; nobody else's tags. Keys that are not known are kept: a later
// version may add some within the same format.
func decodeTags(tags []string) (map[string]string, error) {
	var values map[string]string
	for _, tag := range tags {
		rest, ours := strings.CutPrefix(tag, tagPrefix)
		if !ours {
			continue
		}
		key, encoded, hasValue := strings.Cut(rest, "=")
		if !hasValue {
			return values, fmt.Errorf("its tag %q has no value", tag)
		}
		value, err := unescapeTag(encoded)
		if err != nil {
			return values, fmt.Errorf("its tag %q is damaged: %w", tag, err)
		}
		if _, twice := values[key]; twice {
			return values, fmt.Errorf("it has two %s tags", tagPrefix+key)
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value
	}
	return values, nil
}

// encodeTag writes `nodelvm.KEY=VALUE`, each byte of the value outside of letters, digits and _+.-/=!: as #xx.
func encodeTag(key, value string) string {
	var b strings.Builder
	b.WriteString(tagPrefix + key + "=")
	for i := range len(value) {
		if c := value[i]; isAlnum(c) || strings.IndexByte("_+.-/=!:", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "#%02x", c)
		}
	}
	return b.String()
}

func unescapeTag(s string) (string, error) {
	var b strings.Builder
	for {
		plain, rest, escaped := strings.Cut(s, "#")
		b.WriteString(plain)
		if !escaped {
			return b.String(), nil
		}
		if len(rest) < 2 {
			return "", fmt.Errorf("nothing follows its last #")
		}
		c, err := hex.DecodeString(rest[:2])
		if err != nil {
			return "", fmt.Errorf("#%s is no byte", rest[:2])
		}
		b.Write(c)
		s = rest[2:]
	}
}

// dmUUID is how device-mapper knows a volume's device: /sys/class/block/dm-N/dm/uuid. Layers below it carry suffixes,
// so only an exact match is the volume.
func dmUUID(vgUUID, lvUUID string) string {
	return "LVM-" + strings.ReplaceAll(vgUUID, "-", "") + strings.ReplaceAll(lvUUID, "-", "")
}
