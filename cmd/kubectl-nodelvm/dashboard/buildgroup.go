package dashboard

import (
	"cmp"
	"slices"

	"github.com/nodelvm/nodelvm/report"
)

func (b *builder) poolItem(g report.Group, p report.Pool) Item {
	used := p.Used
	item := Item{ID: text(g.UUID) + "/lv:" + text(p.Name), Kind: KindPool, Health: HealthOK, State: text(string(p.State)), Group: text(g.Name), LV: text(p.Name),
		Layout: "thin-pool", Size: p.Size, Used: &used}
	switch p.State {
	case report.PoolFull, report.PoolFailed:
		item.Health = HealthError
	case report.PoolWorks, report.PoolInactive:
	}
	for _, c := range b.ofGroup(g) {
		if c.Pool == p.Name {
			item.Health = worst(item.Health, severity(c.Type))
			item.Text = append(item.Text, text(c.Type+": "+c.Text))
		}
	}
	if item.Health == HealthError && len(item.Text) == 0 {
		item.Text = []string{"The thin pool is " + string(p.State) + "."}
	}
	return item
}

// ofGroup returns the conditions of a group and its pools, at most maxMessages, each once: each volume of a full pool has that of the pool.
func (b *builder) ofGroup(g report.Group) (list []report.Condition) {
	for _, c := range b.page.Conditions {
		if !c.IsOf(g) || c.Volume != "" && c.Pool == "" {
			continue
		}
		c.Volume = ""
		if len(list) < maxMessages && !slices.Contains(list, c) {
			list = append(list, c)
		}
	}
	return list
}

// group builds a volume group with its disks and pools.
func (b *builder) group(g report.Group) Group {
	view := Group{Name: text(g.Name), UUID: text(g.UUID), Tags: texts(g.Tags), Size: g.Size, Free: g.Free, ExtentSize: g.ExtentSize, Health: HealthOK, Disks: []Disk{}}
	if g.Problem != "" {
		view.Health, view.Messages = HealthError, []string{text(g.Problem)}
	}
	for _, c := range b.ofGroup(g) {
		view.Health = worst(view.Health, severity(c.Type))
		view.Messages = append(view.Messages, text(c.Type+": "+c.Text))
	}
	for _, pv := range cut(g.PVs, maxDisks, &b.node.Omitted) {
		disk := b.disk(view.Name, pv)
		if disk.State != "ok" {
			view.Health = HealthError
		}
		view.Disks = append(view.Disks, disk)
	}
	for _, p := range cut(g.Pools, maxPools, &b.node.Omitted) {
		if i, known := b.byLV[[2]string{view.Name, text(p.Name)}]; known {
			view.Pools = append(view.Pools, b.pool(i, view.Name, p))
		}
	}
	b.worse(view.Health)
	return view
}

// disk returns a physical volume with ascending, disjoint ranges; it joins neighbouring ranges of one item. It drops ranges that
// overlap, or lie outside the disk: no correct driver reports them.
func (b *builder) disk(group string, pv report.PV) Disk {
	d := Disk{Device: text(pv.Device), UUID: text(pv.UUID), State: "ok", Extents: max(pv.Extents, 0), Ranges: [][3]int64{}}
	if pv.Disk != nil {
		d.Model, d.Serial, d.Slot = text(pv.Disk.Model), text(pv.Disk.Serial), text(pv.Disk.Slot)
		if pv.Missing {
			d.LastPath = text(pv.Disk.Path)
		}
	}
	switch {
	case pv.Missing:
		d.State = "missing"
	case pv.Unresponsive:
		d.State = "unresponsive"
	}
	var all [][3]int64
	for _, r := range pv.Allocated {
		item, known := b.byLV[[2]string{group, text(cmp.Or(r.Owner, r.LV))}]
		if !known {
			item = ItemOther
		}
		all = append(all, [3]int64{r.Start, r.Count, int64(item)})
	}
	for _, r := range pv.Free {
		all = append(all, [3]int64{r.Start, r.Count, ItemFree})
	}
	slices.SortStableFunc(all, func(x, y [3]int64) int { return cmp.Compare(x[0], y[0]) })
	for _, r := range all {
		d.Ranges = appendRange(d.Ranges, r, d.Extents)
	}
	d.Ranges = cut(d.Ranges, maxRanges, &b.node.Omitted)
	return d
}

func appendRange(ranges [][3]int64, r [3]int64, extents int64) [][3]int64 {
	var end int64
	if n := len(ranges); n > 0 {
		last := &ranges[n-1]
		end = last[0] + last[1]
		if last[2] == r[2] && end == r[0] && r[1] > 0 && r[1] <= extents-r[0] {
			last[1] += r[1]
			return ranges
		}
	}
	if r[0] < end || r[1] <= 0 || r[0] >= extents || r[1] > extents-r[0] {
		return ranges
	}
	return append(ranges, r)
}

// pool lists the volumes of a pool. A snapshot is in the pool of its source.
func (b *builder) pool(item int, group string, p report.Pool) Pool {
	view := Pool{Item: item, Used: p.Used, Size: p.Size, Provisioned: p.Provisioned, MetaUsed: p.MetadataUsed, MetaSize: p.MetadataSize, Items: []int{}}
	inPool := map[string]bool{}
	for i, v := range b.node.Items {
		if v.Group == group && v.Pool == text(p.Name) {
			view.Items = append(view.Items, i)
			inPool[v.ID] = true
		}
	}
	for i, s := range b.node.Items {
		if s.Kind == KindSnapshot && inPool[s.Source] {
			b.node.Items[i].Pool = text(p.Name)
			view.Items = append(view.Items, i)
		}
	}
	return view
}
