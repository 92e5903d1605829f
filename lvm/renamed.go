package lvm

import "slices"

// An admin who renames a volume of this driver (lvrename) leaves its handle without a logical volume: who asks for the volume would be
// told that it is gone, its deletion would succeed with the data in place, and another one would be made under its name. So a
// volume is known by its tags, which tell the name that its handle has. While the two differ, every request for it is
// refused, deletion too: whoever renames a volume may want to keep it, and what is deleted does not come back.

// handleName is the logical volume's name in the handle of a volume or a snapshot.
func handleName(lv LV, values map[string]string) string {
	switch name := values[KeyName]; {
	case values[keyLV] != "":
		return values[keyLV]
	case values[KeyKind] == TagSnapshot && name != "" && name != lv.Name: // FlushArgs makes one of that name
		return SnapshotName(name)
	case csiNamePattern.MatchString(name):
		return name
	default:
		return lv.Name // of an earlier release, which noted no more
	}
}

// LocateLV finds the logical volume of a handle. KindNotFound, KindBusy: as absent; KindConflict: it was renamed, or may have been.
func (g Group) LocateLV(id ID, what string) (LV, error) {
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == id.LV })
	if i >= 0 && g.HandleName(g.LVs[i]) == id.LV {
		return g.LVs[i], nil
	}
	for _, lv := range g.LVs {
		if g.HandleName(lv) == id.LV || g.MayBeCreatedAs(lv, id.LV) {
			return lv, Errorf(KindConflict, "%s %s was renamed to %s/%s: rename it back (lvrename %s %s %s), and the request succeeds; to protect it from deletion, remove its tags that begin with %s (lvchange --deltag)",
				what, id, g.Name, lv.Name, g.Name, lv.Name, id.LV, TagPrefix)
		}
	}
	if i >= 0 {
		lv := g.LVs[i]
		return lv, Errorf(KindConflict, "%s/%s is not the %s %s: by its tags it is %s and was renamed; rename it back (lvrename %s %s %s)",
			g.Name, lv.Name, what, id, g.HandleName(lv), g.Name, lv.Name, g.HandleName(lv))
	}
	if lv := g.findUnnamed(); lv != nil && csiNamePattern.MatchString(id.LV) {
		return *lv, Errorf(KindConflict, "volume group %s has no %s %s, and %s/%s is a volume of this driver that was renamed and may be it: rename it back (lvrename), or, if it is another one, give it its name with lvchange --addtag %s %s/%s",
			g.Name, what, id.LV, g.Name, lv.Name, EncodeTag(KeyName, "NAME"), g.Name, lv.Name)
	}
	return LV{}, g.AbsentError("volume group %s has no %s %s", g.Name, what, id.LV)
}

// HandleName is the logical volume's name in the handle of what it is; its own if it is not ours, or cannot be read.
func (g Group) HandleName(lv LV) string {
	values, kind, err := managedTags(g, lv)
	if err != nil || values == nil || kind == TagPool {
		return lv.Name
	}
	return handleName(lv, values)
}

// MayBeCreatedAs tells whether a volume of an earlier release, which noted its name alone, may have been made as this logical volume.
func (g Group) MayBeCreatedAs(lv LV, made string) bool {
	values, kind, err := managedTags(g, lv)
	return err == nil && kind == "" && values[KeyName] != "" && values[keyLV] == "" && LVName(values[KeyName]) == made
}

// findUnnamed finds a volume that was renamed, and of which nothing tells its name: releases that left the name out did so only
// where the logical volume had it.
func (g Group) findUnnamed() *LV {
	for i, lv := range g.LVs {
		values, kind, err := managedTags(g, lv)
		if err == nil && values != nil && kind == "" && values[KeyName] == "" && values[keyLV] == "" && !csiNamePattern.MatchString(lv.Name) {
			return &g.LVs[i]
		}
	}
	return nil
}

// FindRenamed finds what was made under a name and is not called like that any more; nil if there is none. It costs no reading of
// tags, since every creation asks for it.
func (g Group) FindRenamed(name, lv, cluster string) *LV {
	named, owned := EncodeTag(KeyName, name), EncodeTag(KeyCluster, cluster)
	for i := range g.LVs {
		tags := g.LVs[i].Tags
		if !g.LVs[i].Hidden && g.LVs[i].Name != lv && slices.Contains(tags, named) && slices.Contains(tags, owned) {
			return &g.LVs[i]
		}
	}
	return nil
}
