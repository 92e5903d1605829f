package lvm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The driver stores what it must know about a volume in LVM tags of the logical volume, `nodelvm.KEY=VALUE`. LVM allows letters,
// digits and _+.-/=!:&# in a tag, at most 1024 characters (lvm(8), "Tags").
const (
	TagPrefix  = "nodelvm."
	TagVersion = "1"
	MaxTag     = 1024
)

// The keys of format version 1. The first releases always wrote wipe and layout. Now the driver omits default values, since
// each LVM command reads and writes the text of all volumes. The name key identifies a volume that an admin renamed; some
// releases omitted it where it was the LV's name.
const (
	KeyVersion    = "v"
	KeyKind       = "kind" // snapshot or pool; omitted for a volume
	keyState      = "state"
	KeyCluster    = "cluster"
	KeyName       = "name"
	keyLV         = "lv" // the LV's name in the volume's handle; omitted if that is the name, and external-provisioner's
	KeyClaim      = "claim"
	keyWipe       = "wipe"   // omitted if it is WipeZero, or the layout has none
	keyLayout     = "layout" // omitted if it is linear
	keyStripes    = "stripes"
	keyStripeSize = "stripesize" // in KiB
	keyMirrors    = "mirrors"
	keyPromise    = "overprovision"
	keySource     = "source" // name of an LV in the same group
	keyMode       = "mode"   // omitted if it is for a file system
	keyEncryption = "encryption"
	keyFormatMark = "formatmark" // the format mark's place, in bytes; omitted for what the driver never formats

	TagSnapshot = "snapshot"
	TagPool     = "pool"

	modeBlock = "block"
)

// VolumeTags encodes a volume's tags. It omits a claim that is too long for a tag: the tag is for admins only, and no claim in
// Kubernetes is that long.
func VolumeTags(v Volume) []string {
	tags := []string{EncodeTag(KeyVersion, TagVersion), StateTag(v.State), EncodeTag(KeyCluster, v.Cluster)}
	add := func(key, value string, wanted bool) {
		if wanted {
			tags = append(tags, EncodeTag(key, value))
		}
	}
	class := v.Class
	add(KeyName, v.Name, true)
	add(keyLV, v.ID.LV, v.ID.LV != v.Name || !csiNamePattern.MatchString(v.Name))
	add(keyWipe, string(class.Wipe), class.Wipe == WipeNone)
	add(keyLayout, string(class.Layout), class.Layout != LayoutLinear)
	add(keyStripes, strconv.Itoa(class.Stripes), class.Stripes != 0)
	add(keyStripeSize, strconv.FormatInt(int64(class.StripeSize/KiB), 10), class.StripeSize != 0)
	add(keyMirrors, strconv.Itoa(class.Mirrors), class.Mirrors != 0)
	add(keyPromise, strconv.Itoa(class.Overprovision), class.Overprovision != 0)
	add(keySource, v.Source.LV, v.Source != ID{})
	add(keyMode, modeBlock, v.Block)
	add(keyEncryption, string(class.Encryption), class.Encryption != EncryptionNone)
	add(keyFormatMark, strconv.FormatInt(int64(v.FormatMark), 10), v.FormatMark != 0)
	add(KeyClaim, v.Claim, v.Claim != "" && len(EncodeTag(KeyClaim, v.Claim)) <= MaxTag)
	return tags
}

// SnapshotTags encodes a snapshot's tags.
func SnapshotTags(sn Snapshot) []string {
	tags := []string{
		EncodeTag(KeyVersion, TagVersion), EncodeTag(KeyKind, TagSnapshot), StateTag(sn.State),
		EncodeTag(KeyCluster, sn.Cluster), EncodeTag(KeyName, sn.Name), EncodeTag(keySource, sn.Source.LV),
	}
	if sn.Encryption != EncryptionNone {
		tags = append(tags, EncodeTag(keyEncryption, string(sn.Encryption)))
	}
	return tags
}

// PoolTags returns the tags of a thin pool that the driver creates.
func PoolTags(cluster string) []string {
	return []string{EncodeTag(KeyVersion, TagVersion), EncodeTag(KeyKind, TagPool), EncodeTag(KeyCluster, cluster)}
}

// StateTag returns the state tag. No other tag ever changes.
func StateTag(s VolumeState) string { return EncodeTag(keyState, string(s)) }

// DecodeTags returns the values of the driver's tags by key. It keeps unknown keys: a later version may add keys to the same
// format, and an earlier version ignores them. So a feature that changes how the driver must handle a volume raises TagVersion, or
// gives kind, state, layout, wipe or encryption a new value: an earlier version then refuses the volume, and keeps it.
func DecodeTags(tags []string) (map[string]string, error) {
	var values map[string]string
	for _, tag := range tags {
		rest, ours := strings.CutPrefix(tag, TagPrefix)
		if !ours {
			continue
		}
		key, encoded, hasValue := strings.Cut(rest, "=")
		if !hasValue {
			return values, fmt.Errorf("its tag %q has no value", tag)
		}
		value, err := UnescapeTag(encoded)
		if err == nil && !utf8.ValidString(value) {
			err = errors.New("it is not UTF-8")
		}
		if err != nil {
			return values, fmt.Errorf("its tag %q is damaged: %w", tag, err)
		}
		if _, twice := values[key]; twice {
			return values, fmt.Errorf("it has two %s tags", TagPrefix+key)
		}
		if values == nil {
			values = map[string]string{}
		}
		values[key] = value
	}
	return values, nil
}

// EncodeTag returns `nodelvm.KEY=VALUE`, with each byte of the value other than letters, digits and _+.-/=!: as #xx.
func EncodeTag(key, value string) string {
	var b strings.Builder
	b.WriteString(TagPrefix + key + "=")
	for i := range len(value) {
		if c := value[i]; IsAlnum(c) || strings.IndexByte("_+.-/=!:", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "#%02x", c)
		}
	}
	return b.String()
}

func UnescapeTag(s string) (string, error) {
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

// DeviceUUID returns the device-mapper UUID of a volume's device, as in /sys/class/block/dm-N/dm/uuid. Hidden layers have suffixes,
// so only an exact match is the volume.
func DeviceUUID(vgUUID VGUUID, lvUUID string) string {
	return "LVM-" + strings.ReplaceAll(string(vgUUID), "-", "") + strings.ReplaceAll(lvUUID, "-", "")
}

// KeyNode is the key of a volume group's tag that names the node which uses it; KeyCluster is that of the node's cluster. LVM's system ID would also exclude the node's own
// lvm from the volume group, unless an admin configures the same ID there.
const KeyNode = "node"

func IsAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
