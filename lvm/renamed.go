package lvm

import "slices"

// After an admin renames a managed volume (lvrename), its handle leads to no logical volume. The driver must not report it as
// absent: its deletion would succeed with the data in place, and a retry would create a second volume. So the volume's tags
// record the name in its handle. While the two names differ, the driver refuses every request for the volume. It refuses
// deletion too: the admin may have renamed the volume to keep it.

// handleName returns the name in the handle of a volume or snapshot.
func handleName(lv LV, values map[string]string) string {
	switch name := values[KeyName]; {
	case values[keyLV] != "":
		return values[keyLV]
	case values[KeyKind] == TagSnapshot && name != "" && name != lv.Name: // FlushArgs creates one with that name
		return SnapshotName(name)
	case csiNamePattern.MatchString(name):
		return name
	default:
		return lv.Name // created by an earlier release, which recorded no other name
	}
}

// LocateLV finds the logical volume of a handle. KindNotFound, KindBusy: as AbsentError; KindConflict: it was renamed, or may
// have been.
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
		return *lv, Errorf(KindConflict, "volume group %s has no %s %s, but the managed volume %s/%s was renamed and may be it: rename it back (lvrename), or, if it is another volume, record its name with lvchange --addtag %s %s/%s",
			g.Name, what, id.LV, g.Name, lv.Name, EncodeTag(KeyName, "NAME"), g.Name, lv.Name)
	}
	return LV{}, g.AbsentError("volume group %s has no %s %s", g.Name, what, id.LV)
}

// HandleName returns the name in the handle of a managed LV, or the LV's own name for any other.
func (g Group) HandleName(lv LV) string {
	values, kind, err := managedTags(g, lv)
	if err != nil || values == nil || kind == TagPool {
		return lv.Name
	}
	return handleName(lv, values)
}

// MayBeCreatedAs reports whether an earlier release, which recorded only the volume's name, may have created this LV under that
// name.
func (g Group) MayBeCreatedAs(lv LV, made string) bool {
	values, kind, err := managedTags(g, lv)
	return err == nil && kind == "" && values[KeyName] != "" && values[keyLV] == "" && LVName(values[KeyName]) == made
}

// findUnnamed finds a renamed volume whose tags do not record a name: earlier releases omitted the name if it was the logical
// volume's.
func (g Group) findUnnamed() *LV {
	for i, lv := range g.LVs {
		values, kind, err := managedTags(g, lv)
		if err == nil && values != nil && kind == "" && values[KeyName] == "" && values[keyLV] == "" && !csiNamePattern.MatchString(lv.Name) {
			return &g.LVs[i]
		}
	}
	return nil
}

// FindRenamed returns the LV of a volume or snapshot that was created under this name and now has another one; nil if there is
// none. It decodes no tags, because every creation calls it.
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
