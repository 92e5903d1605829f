package lvm

import "slices"

// After an admin renames a managed volume (lvrename), its handle leads to no logical volume. The driver must not report it as
// absent: its deletion would succeed with the data in place, and a retry would create a second volume. So the volume's tags
// record the name in its handle. While the two names differ, the driver refuses every request for the volume. It refuses
// deletion too: the admin may have renamed the volume to keep it.

// handleName returns the name in the handle of a volume or snapshot.
func handleName(lv LV, values map[string]string) string {
	switch name := values[keyName]; {
	case values[keyLV] != "":
		return values[keyLV]
	case values[keyKind] == kindSnapshot && name != lv.Name: // FlushArgs creates one with that name
		return SnapshotName(name)
	case csiNamePattern.MatchString(name):
		return name
	default:
		return lv.Name
	}
}

// HandleName returns the name in the handle of a managed volume or snapshot, or the LV's own name for any other.
func (lv LV) HandleName() string {
	switch m := lv.Managed; {
	case m != nil && m.Volume != nil:
		return m.Volume.ID.LV
	case m != nil && m.Snapshot != nil:
		return m.Snapshot.ID.LV
	}
	return lv.Name
}

// LocateLV finds the logical volume of a handle. KindNotFound, KindBusy: as AbsentError; KindConflict: it was renamed.
func (g Group) LocateLV(id ID, what string) (LV, error) {
	i := slices.IndexFunc(g.LVs, func(lv LV) bool { return lv.Name == id.LV })
	if i >= 0 && g.LVs[i].HandleName() == id.LV {
		return g.LVs[i], nil
	}
	for _, lv := range g.LVs {
		if lv.HandleName() == id.LV {
			return lv, Errorf(KindConflict, "%s %s was renamed to %s/%s: rename it back (lvrename %s %s %s), and the request succeeds; to protect it from deletion, remove its tags that begin with %s (lvchange --deltag)",
				what, id, g.Name, lv.Name, g.Name, lv.Name, id.LV, TagPrefix)
		}
	}
	if i >= 0 {
		lv := g.LVs[i]
		return lv, Errorf(KindConflict, "%s/%s is not the %s %s: by its tags it is %s and was renamed; rename it back (lvrename %s %s %s)",
			g.Name, lv.Name, what, id, lv.HandleName(), g.Name, lv.Name, lv.HandleName())
	}
	return LV{}, g.AbsentError("volume group %s has no %s %s", g.Name, what, id.LV)
}

// FindRenamed returns the LV of a volume or snapshot that was created under this name and now has another one; nil if there is
// none.
func (g Group) FindRenamed(name, lv, cluster string) *LV {
	for i := range g.LVs {
		if m := g.LVs[i].Managed; m != nil && m.Name == name && m.Cluster == cluster && g.LVs[i].Name != lv {
			return &g.LVs[i]
		}
	}
	return nil
}
