package lvm

import (
	"cmp"
	"fmt"
	"strconv"
)

// VolumeOf decodes a volume from its LV. ours is false for an unmanaged LV, and for managed snapshots and pools. An error means
// that the LV has the driver's tags, but invalid ones: the driver never changes such an LV.
func VolumeOf(g Group, lv LV) (v Volume, ours bool, err error) {
	values, kind, err := managedTags(g, lv)
	if err != nil || values == nil || kind != "" {
		return Volume{}, err != nil, err
	}
	v = Volume{
		ID:      ID{VG: g.UUID, LV: handleName(lv, values)},
		UUID:    lv.UUID,
		Name:    cmp.Or(values[KeyName], lv.Name),
		Claim:   values[KeyClaim],
		Cluster: values[KeyCluster],
		Group:   g.Name,
		State:   VolumeState(values[keyState]),
		Source:  sourceOf(g, values),
		Block:   values[keyMode] == modeBlock,
	}
	if v.Class, err = classOf(lv, values); err != nil {
		return Volume{}, true, notManagedError(g, lv, err)
	}
	if v.FormatMark, err = formatMarkOf(values); err != nil {
		return Volume{}, true, notManagedError(g, lv, err)
	}
	v.Class.Group = string(g.Name)
	if v.Size = v.Class.DataSize(g.Bytes(lv.Extents)); v.Size == 0 && v.Class.Encryption != EncryptionNone {
		return Volume{}, true, notManagedError(g, lv, fmt.Errorf("is tagged as encrypted and has only %s, of which the LUKS header needs %s", g.Bytes(lv.Extents), LUKSHeaderSize))
	}
	return v, true, nil
}

// SnapshotOf decodes a snapshot from its LV. ours is false for any other LV, managed volumes included. For an error see
// VolumeOf.
func SnapshotOf(g Group, lv LV) (sn Snapshot, ours bool, err error) {
	values, kind, err := managedTags(g, lv)
	if err != nil || kind != TagSnapshot {
		return Snapshot{}, err != nil, err
	}
	encryption := Encryption(values[keyEncryption])
	return Snapshot{
		ID:      ID{VG: g.UUID, LV: handleName(lv, values)},
		UUID:    lv.UUID,
		Name:    cmp.Or(values[KeyName], lv.Name),
		Cluster: values[KeyCluster],
		Group:   g.Name,
		Pool:    lv.Pool,
		Source:  sourceOf(g, values),
		State:   VolumeState(values[keyState]),
		Size:    Class{Encryption: encryption}.DataSize(g.Bytes(lv.Extents)),
		Created: lv.Created,

		Encryption: encryption,
	}, true, nil
}

// IsPool reports whether this driver, in any cluster, created the thin pool: then the driver may extend it.
func IsPool(lv LV) bool {
	values, err := DecodeTags(lv.Tags)
	return err == nil && values[KeyVersion] == TagVersion && values[KeyKind] == TagPool
}

// managedTags returns the values of an LV's managed tags and its kind, "" for a volume; nil if it has none.
func managedTags(g Group, lv LV) (values map[string]string, kind string, err error) {
	if lv.Hidden {
		return nil, "", nil // a sub-LV inherits the volume's tags (an admin's lvconvert)
	}
	values, err = DecodeTags(lv.Tags)
	if values == nil && err == nil {
		return nil, "", nil
	}
	if err == nil {
		err = checkTags(values)
	}
	if err != nil {
		return nil, "", notManagedError(g, lv, err)
	}
	return values, values[KeyKind], nil
}

func notManagedError(g Group, lv LV, err error) error {
	return Errorf(KindInternal, "logical volume %s/%s has tags of this driver, but %w; the driver ignores it: correct its tags (lvchange --addtag, --deltag; compare with lvs -o lv_tags), or remove all %s* tags, and it is unmanaged", g.Name, lv.Name, err, TagPrefix)
}

// checkTags refuses tags that this version cannot interpret.
func checkTags(values map[string]string) error {
	version, there := values[KeyVersion]
	_, owned := values[KeyCluster]
	state, kind := VolumeState(values[keyState]), values[KeyKind]
	switch {
	case !there:
		return fmt.Errorf("has no %s tag", TagPrefix+KeyVersion)
	case version != TagVersion:
		return fmt.Errorf("in format %q, and this program reads format %s", version, TagVersion)
	case kind == TagPool:
		return nil
	case kind != "" && kind != TagSnapshot:
		return fmt.Errorf("its kind is %q", kind)
	case state == "":
		return fmt.Errorf("has no %s tag", TagPrefix+keyState)
	case state != StateCreating && state != StateZeroing && state != StateReady && state != StateDeleting:
		return fmt.Errorf("its state is %q", state)
	case !owned:
		return fmt.Errorf("has no %s tag", TagPrefix+KeyCluster)
	case values[keyLV] != "" && !NamePattern.MatchString(values[keyLV]):
		return fmt.Errorf("its %s tag says %q", TagPrefix+keyLV, values[keyLV])
	case values[keyEncryption] != "" && values[keyEncryption] != string(EncryptionLUKS2):
		return fmt.Errorf("its %s tag says %q, which this version does not know", TagPrefix+keyEncryption, values[keyEncryption])
	case kind == TagSnapshot && values[keySource] == "":
		return fmt.Errorf("has no %s tag", TagPrefix+keySource)
	}
	return nil
}

func sourceOf(g Group, values map[string]string) ID {
	if values[keySource] == "" {
		return ID{}
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

// classOf decodes the class, without its group, and applies the rules for requested classes, so that no plan meets any other.
func classOf(lv LV, values map[string]string) (Class, error) {
	class := Class{Group: "any", Layout: Layout(values[keyLayout]), Wipe: Wipe(values[keyWipe]), Encryption: Encryption(values[keyEncryption])}
	stripeKiB := 0
	for key, value := range map[string]*int{
		keyStripes: &class.Stripes, keyMirrors: &class.Mirrors, keyPromise: &class.Overprovision, keyStripeSize: &stripeKiB,
	} {
		text, there := values[key]
		if !there {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 || n > 1<<30 {
			return Class{}, fmt.Errorf("its %s tag says %q", TagPrefix+key, text)
		}
		*value = n
	}
	class.StripeSize = Bytes(stripeKiB) * KiB
	if class.Layout == LayoutThin {
		class.Pool = cmp.Or(lv.Pool, DefaultPool) // only a killed lvcreate leaves it without a pool
	}
	class, err := CheckClass(class)
	if err != nil {
		return Class{}, fmt.Errorf("its tags are invalid: %w", err)
	}
	return class, nil
}
