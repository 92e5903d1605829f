package lvmtest

import (
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

const spareName = "lvol0_pmspare"

// pool creates a thin pool from its two parts. The spare for repairs, one for each group and as large as the largest pool
// metadata, gets the first of the command's extents, then the metadata, then the data.
func (n *Node) pool(g *group, l line, w wanted, from *room) *failure {
	meta, err := l.size("--poolmetadatasize", 0)
	chunk, chunkErr := l.size("-c", 64*lvm.KiB)
	if err != nil || chunkErr != nil || meta < 2*lvm.MiB || chunk < 64*lvm.KiB || chunk%(64*lvm.KiB) != 0 {
		return &failure{exitArguments, "lvcreate: this fake wants --poolmetadatasize of 2 MiB or more and -c in steps of 64 KiB"}
	}
	if discards := l.values["--discards"]; l.has("--discards") && !slices.Contains([]string{"ignore", "nopassdown", "passdown"}, discards) {
		return &failure{exitArguments, "lvcreate: wrong --discards"}
	}
	extents := lvm.Extents((meta + g.ExtentSize - 1) / g.ExtentSize)
	spare := g.find(spareName)
	var spareSegments []lvm.Segment
	if need := extents; spare == nil || spare.Extents < need {
		if spare != nil {
			need -= spare.Extents
		}
		segments, f := from.linear(need)
		if f != nil {
			return f
		}
		spareSegments = segments
	}
	metadata, f := from.linear(extents)
	if f != nil {
		return f
	}
	data, f := from.linear(w.extents)
	if f != nil {
		return f
	}
	if spare != nil {
		for _, s := range spareSegments {
			extend(spare, s)
			spare.Extents += s.Extents
		}
	} else {
		g.add(lvm.LV{UUID: n.uuid(), Name: spareName, Created: n.now(), Hidden: true, Segments: spareSegments})
	}
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name + "_tmeta", Created: n.now(), Hidden: true, Segments: metadata})
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name + "_tdata", Created: n.now(), Hidden: true, Segments: data})
	g.add(lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(),
		Segments: []lvm.Segment{{Extents: w.extents, Type: "thin-pool"}},
		Thin:     &lvm.ThinPool{Data: w.name + "_tdata", Metadata: w.name + "_tmeta", ChunkSize: chunk, Zero: l.values["-Z"] != "n"}})
	return nil
}

// thin creates an empty thin volume: lvcreate --type thin -V SIZE --thinpool POOL.
func (n *Node) thin(g *group, l line, w wanted) *failure {
	size, err := l.size("-V", 0)
	if err != nil || size < 1 || l.has("-l") || len(l.positional) != 1 {
		return &failure{exitArguments, "lvcreate: a thin volume wants -V"}
	}
	pool := g.find(l.values["--thinpool"])
	if pool == nil || pool.Thin == nil {
		return failed("Pool %s not found in Volume group %s.", l.values["--thinpool"], g.Name)
	}
	if f := n.blocked(g, pool.Name); f != nil {
		return f
	}
	if f := n.tell(g, pool); f != nil {
		return f
	}
	w.extents = lvm.Extents((size + g.ExtentSize - 1) / g.ExtentSize)
	return n.addThin(g, l, w, pool.Name, "")
}

// snapshot creates a thin snapshot of a thin volume: lvcreate -s without a size.
func (n *Node) snapshot(l line, w wanted) *failure {
	g, origin, f := n.volume(l.positional[0], l)
	switch {
	case f != nil:
		return f
	case g.find(w.name) != nil:
		return failed("Logical Volume %q already exists in volume group %q", w.name, g.Name)
	case origin.Type != "thin" || l.has("-l") || l.has("-V"):
		return failed("this fake creates thin snapshots of thin volumes only")
	}
	if f := n.tell(g, g.find(origin.Pool)); f != nil {
		return f
	}
	d := n.device(n.path(g, origin.UUID))
	if d != nil && d.frozen {
		d.suspended = true
		g.add(lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(), Pool: origin.Pool, Origin: origin.Name,
			Segments: []lvm.Segment{{Extents: origin.Extents, Type: "thin"}}})
		n.queue(g.find(g.find(w.name).Pool), "create "+w.name)
		g.commit()
		return failed("device-mapper: suspend ioctl on failed: Device or resource busy")
	}
	w.extents = origin.Extents
	f = n.addThin(g, l, w, origin.Pool, origin.Name)
	if d != nil && (n.halved || n.messagesCounted) {
		d.suspended = true
	}
	return f
}

// addThin adds a thin volume. It activates an empty one unless the command says otherwise; a snapshot without -kn has the flag
// that keeps it inactive. If the command is killed half-way, the pool does not get its message.
func (n *Node) addThin(g *group, l line, w wanted, pool, origin string) *failure {
	lv := lvm.LV{UUID: n.uuid(), Name: w.name, Tags: w.tags, Created: n.now(), Pool: pool, Origin: origin,
		Segments: []lvm.Segment{{Extents: w.extents, Type: "thin"}}}
	n.readOnly[lv.UUID] = l.values["-p"] == "r"
	n.skipped[lv.UUID] = l.values["-k"] == "y" || origin != "" && !l.has("-k")
	n.number(g, g.add(lv))
	n.queue(g.find(pool), "create "+w.name)
	g.commit()
	if n.halved {
		return nil
	}
	if f := n.tell(g, g.find(pool)); f != nil {
		return f
	}
	if l.values["-a"] != "n" && !n.skipped[lv.UUID] {
		n.activate(g, w.name)
	}
	return nil
}
