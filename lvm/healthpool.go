package lvm

// A pool is nearly full from here on. Full metadata is the worse of the two: it can only be mended with the pool offline.
const (
	poolLateData     = 90 // a pool that is enlarged as it fills does not come this far, unless that fails
	poolLateMetadata = 80
)

// PoolMetrics are the figures of one thin pool.
type PoolMetrics struct {
	Name         string
	Size         Bytes // of its data
	Used         Bytes // of that; 0 while it is not active
	MetadataSize Bytes
	MetadataUsed Bytes // 0 while it is not active
	Promised     Bytes // what its volumes and snapshots would hold if they were full
	Grown        int   // how often it was enlarged because it filled up, since the driver started
}

// thin tells what is wrong with the pool of a volume: what makes its writes fail, of each volume; what is only near, once.
func (c *checkup) thin(p patient) {
	s, known := c.pools[p.lv.Pool]
	if !known {
		s = c.pool(p.lv.Pool)
		c.pools[p.lv.Pool] = s
	}
	if s == nil {
		return
	}
	switch name := c.group.Name + "/" + p.lv.Pool; {
	case s.broken():
		c.findPool(TroublePoolFailed, p.volume, p.lv.Pool, "its thin pool %s takes no writes (%s): stop what uses the pool, deactivate its volumes, and repair it with lvconvert --repair %s", name, s.words(), name)
	case s.full():
		c.findPool(TroublePoolFull, p.volume, p.lv.Pool, "its thin pool %s is full (data %s, metadata %s): writes fail; delete snapshots or volumes, or enlarge the pool with lvextend (metadata: --poolmetadatasize)",
			name, percent(s.dataUsed, s.dataTotal), percent(s.metadataUsed, s.metadataTotal))
	}
}

// pool asks for a pool's status, and tells if it is nearly full.
func (c *checkup) pool(name string) *poolStatus {
	lv := c.group.named(name)
	if lv == nil || lv.Thin == nil {
		return nil
	}
	s, err := status(c, dmUUID(c.group.UUID, lv.UUID)+"-tpool", "thin-pool", parsePool)
	if err != nil || s == nil {
		return nil
	}
	if s.broken() || s.full() {
		return s
	}
	m := poolMetrics(c.group, *lv, s)
	near := m.Promised > m.Size && reached(s.dataUsed, s.dataTotal, poolLateData) || reached(s.metadataUsed, s.metadataTotal, poolLateMetadata)
	switch {
	case lv.Thin.Crowded != "":
		c.findPool(TroublePoolNear, Volume{}, name, "no volume or snapshot is made any more: %s", lv.Thin.Crowded)
	case near: // it should have been enlarged before
		c.findPool(TroublePoolNear, Volume{}, name, "thin pool %s/%s is nearly full: data %s of %s, metadata %s of %s, and %s are promised; delete snapshots or volumes, or enlarge it with lvextend (metadata: --poolmetadatasize)",
			c.group.Name, name, percent(s.dataUsed, s.dataTotal), m.Size, percent(s.metadataUsed, s.metadataTotal), m.MetadataSize, m.Promised)
	}
	return s
}

// poolMetrics are the figures of a pool; s is nil while it is not active.
func poolMetrics(g Group, pool LV, s *poolStatus) PoolMetrics {
	m := PoolMetrics{Name: pool.Name, Size: g.bytes(pool.Extents)}
	if metadata := g.named(pool.Thin.Metadata); metadata != nil {
		m.MetadataSize = g.bytes(metadata.Extents)
	}
	for _, lv := range g.LVs {
		if lv.Pool == pool.Name {
			m.Promised += g.bytes(lv.Extents)
		}
	}
	if s != nil {
		m.Used = Bytes(s.dataUsed) * pool.Thin.ChunkSize
		m.MetadataUsed = Bytes(s.metadataUsed) * poolMetadataBlock
	}
	return m
}

// poolsOf are the figures of a group's pools.
func (h *Host) poolsOf(g Group, paths map[string]string) []PoolMetrics {
	var all []PoolMetrics
	c := checkup{host: h, group: g, paths: paths}
	for _, lv := range g.LVs {
		if lv.Thin == nil {
			continue
		}
		s, err := status(&c, dmUUID(g.UUID, lv.UUID)+"-tpool", "thin-pool", parsePool)
		if err != nil {
			h.log.Warn("no figures of a thin pool", "vg", g.Name, "pool", lv.Name, "error", err)
		}
		m := poolMetrics(g, lv, s)
		m.Grown = h.grown.of(lv.UUID)
		all = append(all, m)
	}
	return all
}
