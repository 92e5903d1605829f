package dashboard

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

// answer is what the collector has read of one node.
type answer struct {
	page  report.Node // the last one; meaningless unless read
	read  bool
	error string // why the last read failed
}

// builder builds one node's part of the model.
type builder struct {
	node    Node
	page    report.Node
	byLV    map[[2]string]int // in node.Items, by group and LV
	byID    map[string]bool
	of      map[string][]report.Condition // by volume
	alone   map[string]report.Unreferenced
	name    string
	objects *index
}

// BuildNode returns the model of a node from its status page, or from the error of reading it.
func BuildNode(name string, page report.Node, err error, objects Objects) Node {
	a := answer{page: page, read: err == nil}
	if err != nil {
		a.error = err.Error()
	}
	return buildNode(name, a, newIndex(objects))
}

// buildNode returns the model of a node. It is a pure function of the node's answer and the API's objects.
func buildNode(name string, a answer, objects *index) Node {
	b := &builder{node: Node{Name: text(name), Health: HealthOK, Groups: []Group{}, Items: []Item{}}, page: a.page,
		byLV: map[[2]string]int{}, byID: map[string]bool{}, of: map[string][]report.Condition{}, alone: map[string]report.Unreferenced{}, name: name, objects: objects}
	if a.read {
		b.page.Conditions = cut(b.page.Conditions, maxItems, &b.node.Omitted)
		for _, c := range b.page.Conditions {
			b.of[c.Volume] = append(b.of[c.Volume], c)
		}
		if a.page.Comparison != nil {
			for _, u := range cut(a.page.Comparison.Unreferenced, maxItems, &b.node.Omitted) {
				b.alone[u.Handle] = u
			}
		}
		b.node.Wipe = a.page.WipeBacklog
		b.node.Version, b.node.Kernel = text(a.page.Version), text(a.page.Checks.Kernel)
		b.addProblems()
		b.addItems()
		for _, g := range cut(a.page.Groups, maxGroups, &b.node.Omitted) {
			b.node.Groups = append(b.node.Groups, b.group(g))
		}
	}
	if a.error != "" || !a.read {
		b.node.Health, b.node.Stale = HealthUnknown, a.read
		if a.error != "" {
			b.node.Problems = append([]string{text(a.error)}, b.node.Problems...)
		}
	}
	b.addPending(a)
	return b.node
}

func (b *builder) addProblems() {
	problems := slices.Concat(b.page.Unknown, b.page.Unread, b.page.Damaged, b.page.OnVolumes)
	if b.page.NotReady != "" {
		problems = append([]string{"the driver is not ready: " + b.page.NotReady}, problems...)
	}
	if len(problems) > 0 {
		b.worse(HealthError)
	}
	var of []string // the node, or a group that is not drawn
	for _, c := range b.page.Conditions {
		if c.Volume == "" && !slices.ContainsFunc(b.page.Groups, c.IsOf) {
			of = append(of, c.Text)
			b.worse(severity(c.Type))
		}
	}
	b.node.Problems = texts(slices.Concat(of, problems))
}

func (b *builder) worse(h Health) { b.node.Health = worst(b.node.Health, h) }

func worst(a, b Health) Health {
	order := []Health{HealthOK, HealthWarning, HealthUnknown, HealthError}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// severity returns the health that a condition means. It is an error for a type that the plugin does not know.
func severity(condition string) Health {
	if lvm.ConditionType(condition).Severity() == lvm.SeverityCritical {
		return HealthError
	}
	return HealthWarning
}

func (b *builder) add(item Item) {
	if len(b.node.Items) >= maxItems {
		b.node.Omitted++
		return
	}
	if item.LV != "" {
		b.byLV[[2]string{item.Group, item.LV}] = len(b.node.Items)
	}
	b.byID[item.ID] = true
	b.worse(item.Health)
	b.node.Items = append(b.node.Items, item)
}

// addItems adds volumes, snapshots, pools, and other logical volumes that occupy extents.
func (b *builder) addItems() {
	for _, v := range b.page.Volumes {
		item := Item{ID: text(v.ID), Kind: KindVolume, Health: HealthOK, State: text(v.State), Group: text(v.Group), LV: text(v.LV), UUID: text(v.UUID),
			Layout: text(v.Layout), Pool: text(v.Pool), Size: v.Size, Used: v.Used, Claim: text(v.Claim), PV: text(v.Name), Created: v.Created, FS: fileSystem(v.FileSystem), Crypt: text(v.Encryption)}
		switch v.State {
		case "ready":
		case "deleting":
			item.Kind = KindWipe
		default:
			item.Health = HealthWarning
		}
		b.finish(&item, v.ID, v.Cluster)
		b.add(item)
	}
	for _, s := range b.page.Snapshots {
		item := Item{ID: text(s.ID), Kind: KindSnapshot, Health: HealthOK, State: text(s.State), Group: text(s.Group), LV: text(s.LV), Layout: "thin",
			Size: s.Size, PV: text(s.Name), Source: text(s.Source), Created: s.Created}
		b.finish(&item, s.ID, s.Cluster)
		b.add(item)
	}
	for _, g := range b.page.Groups {
		for _, p := range g.Pools {
			b.add(b.poolItem(g, p))
		}
		b.addOthers(g)
	}
}

func fileSystem(f *report.FileSystem) *FileSystem {
	if f == nil || f.Error != "" {
		return nil
	}
	return &FileSystem{Type: text(f.Type), Space: percent(int64(f.Size)-int64(f.Available), int64(f.Size)), Inodes: percent(f.InodesUsed, f.Inodes)}
}

// percent rounds down, so that only a full file system has 100. It limits the result, because a node may report wrong numbers.
func percent(part, whole int64) int {
	if whole <= 0 {
		return 0
	}
	return int(min(max(100*(float64(part)/float64(whole)), 0), 100))
}

// finish adds what the objects, the conditions and the driver's comparison say about an item. It ignores the PersistentVolume of
// another node: a node's document must not change what the page shows of other nodes' volumes.
func (b *builder) finish(item *Item, handle, cluster string) {
	if cluster != b.page.Cluster {
		item.Cluster = text(cmp.Or(cluster, "unknown"))
	}
	if pv, known := b.objects.volumes[handle]; known && pv.Node == b.name {
		item.PV, item.Phase, item.Class = text(pv.Name), text(pv.Phase), text(pv.Class)
		item.Claim, item.Crypt = text(cmp.Or(pv.Claim, item.Claim)), encryption(cmp.Or(pv.Encryption, item.Crypt), pv.KeySecret)
		if pv.Phase == "Bound" {
			item.Pods = texts(b.objects.Pods[pv.Claim])
		}
	}
	for _, c := range b.of[handle] {
		item.Health = worst(item.Health, severity(c.Type))
		if len(item.Text) < maxMessages {
			item.Text = append(item.Text, text(c.Type+": "+c.Text))
		}
	}
	if u, found := b.alone[handle]; found {
		if u.Reason != report.ReasonOtherCluster {
			item.Health = worst(item.Health, HealthWarning)
		}
		item.Text = append(item.Text, text(string(u.Reason)+": "+u.Text))
	}
}

// encryption describes how a volume is encrypted, and which Secret has its key.
func encryption(kind, secret string) string {
	if kind == "" || secret == "" {
		return text(kind)
	}
	return text(kind + " (Secret " + secret + ")")
}

func (b *builder) addOthers(g report.Group) {
	sizes := map[string]lvm.Bytes{}
	var names []string
	for _, pv := range g.PVs {
		for _, r := range pv.Allocated {
			name := text(cmp.Or(r.Owner, r.LV))
			if _, known := b.byLV[[2]string{text(g.Name), name}]; known {
				continue
			}
			if _, seen := sizes[name]; !seen {
				names = append(names, name)
			}
			sizes[name] += lvm.Bytes(r.Count) * g.ExtentSize
		}
	}
	for _, name := range names {
		b.add(Item{ID: text(g.UUID) + "/lv:" + name, Kind: KindOther, Health: HealthOK, State: "not managed", Group: text(g.Name), LV: name, Size: sizes[name]})
	}
}

// addPending adds claims and PersistentVolumes of this node that the node's document does not show.
func (b *builder) addPending(a answer) {
	for _, pv := range b.objects.onNode[b.name] {
		if b.byID[text(pv.Handle)] {
			continue
		}
		item := Item{ID: text(pv.Handle), Kind: KindUnread, Health: HealthUnknown, State: "not read", Claim: text(pv.Claim), PV: text(pv.Name),
			Phase: text(pv.Phase), Class: text(pv.Class), Size: pv.Size, Crypt: encryption(pv.Encryption, pv.KeySecret)}
		if pv.Phase == "Bound" {
			item.Pods = texts(b.objects.Pods[pv.Claim])
		}
		if a.read && a.error == "" && len(b.page.Unknown)+len(b.page.Unread) == 0 && b.page.NotReady == "" {
			item.Kind, item.State, item.Health = KindPending, "missing", HealthError
			item.Text = []string{"The PersistentVolume names this node, but the node does not report the volume."}
		}
		b.add(item)
	}
	for _, claim := range b.objects.claimsOn[b.name] {
		kind := KindPending
		if claim.Phase == "Bound" && (!a.read || a.error != "") {
			kind = KindUnread
		}
		b.add(Item{ID: "claim:" + text(claim.Claim), Kind: kind, Health: HealthUnknown, State: text(strings.ToLower(claim.Phase)), Claim: text(claim.Claim),
			PV: text(claim.Volume), Class: text(claim.Class), Size: claim.Size, Pods: texts(b.objects.Pods[claim.Claim])})
	}
}
