package lvm

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
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

// The keys of format version 1, beside those of the class (Parameters). The first releases always wrote wipe and layout. Now the driver omits default values, since
// each LVM command reads and writes the text of all volumes. The name key identifies a volume that an admin renamed.
const (
	KeyVersion    = "v"
	keyKind       = "kind" // snapshot, round or pool; omitted for a volume
	keyState      = "state"
	KeyCluster    = "cluster"
	keyName       = "name"
	keyLV         = "lv" // the LV's name in the volume's handle; omitted if that is the name, and external-provisioner's
	keyClaim      = "claim"
	keySource     = "source" // name of an LV in the same group; the whole handle of one in another group, of which it is a full copy
	keyMode       = "mode"   // omitted if it is for a file system
	keyAccess     = "access" // of a read-only copy; omitted for what is writable
	keyEncryption = "encryption"
	keyFormatMark = "formatmark" // the format mark's place, in bytes; omitted for what the driver never formats
	keyLimits     = "iolimits"   // LimitsTag; omitted if nothing is limited
	keyWiped      = "wiped"      // of a deleted volume: how many bytes from its beginning are zero and flushed; omitted if none are known

	keyMove   = "move"   // of a side of a move; stays
	keyCopied = "copied" // of a receiving volume, in bytes
	keyBase   = "base"   // of a receiving volume
	keyRecord = "record" // the first of several: record0, record1, ...; base64

	kindSnapshot = "snapshot"
	kindPool     = "pool"

	modeBlock = "block"
)

// VolumeTags encodes a volume's tags. It omits a claim that is too long for a tag: the tag is for admins only, and no claim in
// Kubernetes is that long.
func VolumeTags(v Volume) []string {
	tags := []string{EncodeTag(KeyVersion, TagVersion), StateTag(v.State)}
	if v.Move != "" || v.Copied != 0 || v.Base != "" || v.Record != "" {
		tags = append(tags[:1], MoveTags(v)...)
	}
	tags = append(tags, EncodeTag(KeyCluster, v.Cluster))
	add := func(key, value string, wanted bool) {
		if wanted {
			tags = append(tags, EncodeTag(key, value))
		}
	}
	add(keyName, v.Name, true)
	add(keyLV, v.ID.LV, v.ID.LV != v.Name || !csiNamePattern.MatchString(v.Name))
	for _, p := range Parameters {
		value := p.Value(v.Class)
		add(p.Tag, value, p.Tag != "" && value != "" && value != p.Unsaid)
	}
	add(keySource, sourceTag(v), v.Source != ID{})
	add(keyMode, modeBlock, v.Block)
	add(keyAccess, string(v.Access), v.Access != AccessWritable)
	add(keyFormatMark, strconv.FormatInt(int64(v.FormatMark), 10), v.FormatMark != 0)
	if v.Limits != (Limits{}) {
		tags = append(tags, LimitsTag(v.Limits))
	}
	add(keyWiped, strconv.FormatInt(int64(v.Wiped), 10), v.Wiped != 0)
	add(keyClaim, v.Claim, v.Claim != "" && len(EncodeTag(keyClaim, v.Claim)) <= MaxTag)
	return tags
}

func sourceTag(v Volume) string {
	if v.Source.VG != v.ID.VG {
		return v.Source.String()
	}
	return v.Source.LV
}

// SnapshotTags encodes a snapshot's tags.
func SnapshotTags(sn Snapshot) []string {
	tags := []string{
		EncodeTag(KeyVersion, TagVersion), EncodeTag(keyKind, kindSnapshot), StateTag(sn.State),
		EncodeTag(KeyCluster, sn.Cluster), EncodeTag(keyName, sn.Name), EncodeTag(keySource, sn.Source.LV),
	}
	if sn.Encryption != EncryptionNone {
		tags = append(tags, EncodeTag(keyEncryption, string(sn.Encryption)))
	}
	if sn.Claim != "" {
		tags = append(tags, EncodeTag(keyClaim, sn.Claim))
	}
	return append(tags, sn.Member.tags()...)
}

// PoolTags returns the tags of a thin pool that the driver creates.
func PoolTags(cluster string) []string {
	return []string{EncodeTag(KeyVersion, TagVersion), PoolTag(), EncodeTag(KeyCluster, cluster)}
}

// PoolTag is the tag of each thin pool that the driver created.
func PoolTag() string { return EncodeTag(keyKind, kindPool) }

// StateTag returns the state tag. Of the other tags only WipedTag, LimitsTag, AccessTag and those of a move (MoveTags) ever change.
func StateTag(s VolumeState) string { return EncodeTag(keyState, string(s)) }

// WipedTag returns the tag that records the progress of a wipe.
func WipedTag(n Bytes) string { return EncodeTag(keyWiped, strconv.FormatInt(int64(n), 10)) }

// addValues adds the values of the driver's tags by key, and reports whether there are any. It keeps unknown keys: a later version may add keys to the
// same format, and an earlier version ignores them. So a feature that changes how the driver must handle a volume raises TagVersion, or
// gives kind, state, layout, wipe, encryption or access a new value: an earlier version then refuses the volume, and keeps it.
func addValues(values map[string]string, tags []string) (there bool, invalid error) {
	for _, tag := range tags {
		rest, ours := strings.CutPrefix(tag, TagPrefix)
		if !ours {
			continue
		}
		there = true
		if err := addValue(values, tag, rest); err != nil && invalid == nil {
			invalid = err
		}
	}
	return there, invalid
}

func addValue(values map[string]string, tag, rest string) error {
	key, encoded, hasValue := strings.Cut(rest, "=")
	if !hasValue {
		return fmt.Errorf("its tag %q has no value", tag)
	}
	value, err := UnescapeTag(encoded)
	if key == keyLimits { // whatever it says, the volume is usable (limitsOf)
		values[key] += encoded + " "
		return nil
	}
	if err == nil && !utf8.ValidString(value) {
		err = errors.New("it is not UTF-8")
	}
	if err != nil {
		return fmt.Errorf("its tag %q is damaged: %w", tag, err)
	}
	if _, twice := values[key]; twice {
		return fmt.Errorf("it has two %s tags", TagPrefix+key)
	}
	values[key] = value
	return nil
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

// UnescapeTag decodes the value of a tag. A value without escapes shares the tag's memory.
func UnescapeTag(s string) (string, error) {
	if strings.IndexByte(s, '#') < 0 {
		return s, nil
	}
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

// The format mark is a record of the driver on a volume's own device: the volume was never mounted, so the driver may format it. The
// driver writes it before it tags a new volume as ready, and removes it, durably, before the first mount. A tag, which never changes,
// says that the volume had one, and where. So neither the first format nor any later start needs an LVM command for this record, and
// a volume with the tag and without the mark is never formatted, whatever its device shows.

// FormatMarkSize is the size of a mark, a multiple of which is its place.
const FormatMarkSize = 4096

// formatMarkSpare is the end of a device, which mkfs.ext4 and mkfs.xfs clear. A new file system of these types has free space before it.
const formatMarkSpare = 128 * KiB

const formatMarkWords = "nodelvm: mkfs.ext4 of this logical volume has not ended\n"

// FormatMark returns the mark of a logical volume. A copy of the volume has another UUID, so it has no mark.
func FormatMark(lvUUID string) []byte {
	mark := make([]byte, FormatMarkSize)
	copy(mark, formatMarkWords+lvUUID)
	binary.LittleEndian.PutUint32(mark[FormatMarkSize-4:], crc32.Checksum(mark[:FormatMarkSize-4], crc32.MakeTable(crc32.Castagnoli)))
	return mark
}

// IsFormatMark reports whether a block is the mark of any logical volume.
func IsFormatMark(block []byte) bool {
	text, is := strings.CutPrefix(string(block), formatMarkWords)
	if !is || len(block) != FormatMarkSize {
		return false
	}
	uuid, _, _ := strings.Cut(text, "\x00")
	return string(FormatMark(uuid)) == string(block)
}

// FormatMarkPlaces returns the possible places of the mark on a device, ascending and without overlap; first: FormatMark of the volume. One is before the
// device's end, which mkfs.ext4 and mkfs.xfs do not write. Another is where its end was at the volume's creation, which an expansion does not
// change. The fixed place is for mkfs.btrfs, which clears the end.
func FormatMarkPlaces(first, size Bytes) []int64 {
	var all []int64
	end := FormatMarkOffset(size)
	for _, at := range []Bytes{fixedMarkPlace, first, end} {
		if at >= FormatMarkSize && at <= end && !slices.Contains(all, int64(at)) {
			all = append(all, int64(at))
		}
	}
	slices.Sort(all)
	return all
}

// fixedMarkPlace is a place that mkfs.btrfs and mkfs.xfs do not write on any device, and mkfs.ext4 not on most.
const fixedMarkPlace = 3 * MiB

// FormatMarkOffset returns the place of the mark on a device of a size; 0 if the device is too small for one.
func FormatMarkOffset(size Bytes) Bytes {
	return max(0, (size-formatMarkSpare)/FormatMarkSize*FormatMarkSize-FormatMarkSize)
}

// NeedsFormatMark reports whether the driver may ever format a new volume: not a copy, nor a raw one, unless it is encrypted.
func (v Volume) NeedsFormatMark() bool {
	return v.Source == ID{} && (!v.Block || v.Class.Encryption != EncryptionNone)
}
