package lvm

import (
	"cmp"
	"fmt"
	"strconv"
)

// VolumeOf reads a volume back from its LV. ours is false for an LV without our tags, and for our snapshots and pools.
// An error means that it bears our mark and cannot be read: such an LV is never touched.
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
		Size:    Bytes(lv.Extents) * g.ExtentSize,
		Source:  sourceOf(g, values),
		Block:   values[keyMode] == modeBlock,
	}
	if v.Class, err = classOf(lv, values); err != nil {
		return Volume{}, true, notManagedError(g, lv, err)
	}
	v.Class.Group = g.Name
	return v, true, nil
}

// SnapshotOf reads a snapshot back from its LV. ours is false for any other LV, volumes of ours included; an error is as
// with VolumeOf.
func SnapshotOf(g Group, lv LV) (sn Snapshot, ours bool, err error) {
	values, kind, err := managedTags(g, lv)
	if err != nil || kind != TagSnapshot {
		return Snapshot{}, err != nil, err
	}
	return Snapshot{
		ID:      ID{VG: g.UUID, LV: handleName(lv, values)},
		UUID:    lv.UUID,
		Name:    cmp.Or(values[KeyName], lv.Name),
		Cluster: values[KeyCluster],
		Group:   g.Name,
		Pool:    lv.Pool,
		Source:  sourceOf(g, values),
		State:   VolumeState(values[keyState]),
		Size:    Bytes(lv.Extents) * g.ExtentSize,
		Created: lv.Created,
	}, true, nil
}

// IsPool tells whether a thin pool was made by this driver, for whichever cluster: then it may grow it.
func IsPool(lv LV) bool {
	values, err := DecodeTags(lv.Tags)
	return err == nil && values[KeyVersion] == TagVersion && values[KeyKind] == TagPool
}

// managedTags answers the values of our tags on an LV and the kind that they tell, "" for a volume; nil if it has none.
func managedTags(g Group, lv LV) (values map[string]string, kind string, err error) {
	if lv.Hidden {
		return nil, "", nil // a part of a volume inherits its tags (an admin's lvconvert)
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

// checkTags refuses what this program cannot know the meaning of.
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

// classOf reads the class, without its group. It is held to the rules of the classes that are asked for, so that
// nothing else is ever reckoned with.
func classOf(lv LV, values map[string]string) (Class, error) {
	class := Class{Group: "any", Layout: Layout(values[keyLayout]), Wipe: Wipe(values[keyWipe])}
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
		class.Pool = cmp.Or(lv.Pool, DefaultPool) // it is in none only if it was cut off when it was made
	}
	class, err := CheckClass(class)
	if err != nil {
		return Class{}, fmt.Errorf("its tags are not right: %w", err)
	}
	return class, nil
}
