package lvmtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodelvm/nodelvm/lvm"
)

// device is one device-mapper device: an active volume, or a layer below one.
type device struct {
	lvm.Device
	volume    string // name of the volume that it belongs to
	suspended bool
	frozen    bool // by fsfreeze: it cannot be suspended
	opens     int
	writes    int64
	bound     int               // paths where its device node is bound
	removed   map[string]string // by the UUID of a physical volume: the removed disk that the device maps instead
	status    string            // "TARGET PARAMETERS", if a test has set it
}

// DeviceUUID is the UUID of a volume's device-mapper device, by the UUIDs of group and volume.
func DeviceUUID(vg, lv string) string {
	return "LVM-" + strings.ReplaceAll(vg, "-", "") + strings.ReplaceAll(lv, "-", "")
}

// activate creates a volume's device, after those of its sub-LVs and pool.
func (n *Node) activate(g *group, name string) {
	lv := g.find(name)
	suffix := ""
	switch {
	case lv.Pool != "":
		n.activatePool(g, lv.Pool)
	case lv.Thin != nil:
		n.activatePool(g, name)
		suffix = "-pool"
	default:
		for _, part := range g.parts(name) {
			n.activate(g, part)
		}
	}
	n.raise(g, name, suffix)
}

func (n *Node) activatePool(g *group, pool string) {
	thin := g.find(pool).Thin
	n.raise(g, thin.Metadata, "-tmeta")
	n.raise(g, thin.Data, "-tdata")
	n.raise(g, pool, "-tpool")
}

// raise creates a device unless it exists.
func (n *Node) raise(g *group, name, suffix string) {
	if n.raised(g, name, suffix) {
		return
	}
	n.serial++
	n.devices = append(n.devices, &device{volume: name, Device: lvm.Device{UUID: DeviceUUID(string(g.UUID), g.find(name).UUID) + suffix, Path: fmt.Sprintf("/dev/dm-%d", n.serial)}})
}

// carries reports whether another device is on this one.
func (n *Node) carries(d *device) bool {
	for _, g := range n.groups {
		for _, lv := range g.LVs {
			pool := lv.Thin != nil && (lv.Thin.Data == d.volume || lv.Thin.Metadata == d.volume) && n.raised(g, lv.Name, "-tpool")
			thin := lv.Pool == d.volume && n.raised(g, lv.Name, "") || lv.Thin != nil && lv.Name == d.volume && n.raised(g, lv.Name, "-pool")
			if pool || thin && strings.HasSuffix(d.UUID, "-tpool") || slices.Contains(g.parts(lv.Name), d.volume) && n.raised(g, lv.Name, "") {
				return true
			}
		}
	}
	return false
}

func (n *Node) raised(g *group, name, suffix string) bool {
	uuid := DeviceUUID(string(g.UUID), g.find(name).UUID) + suffix
	return slices.ContainsFunc(n.devices, func(d *device) bool { return d.UUID == uuid })
}

// blocked returns the error for a thin pool with a part that is still active: a command was killed while it used the part.
func (n *Node) blocked(g *group, pool string) *failure {
	part := g.find(pool).Thin.Metadata
	if n.raised(g, part, "-tmeta") && !n.raised(g, pool, "-tpool") {
		return failed("Activation of logical volume %s/%s is prohibited while logical volume %s/%s is active.", g.Name, pool, g.Name, part)
	}
	return nil
}

// mismatched returns the error for an inactive thin pool of which LVM's metadata is another state.
func (n *Node) mismatched(g *group, name string) *failure {
	pool := g.find(name)
	if has, is := pool.Thin.TransactionID, n.kernelOf(pool).transaction; !n.raised(g, name, "-tpool") && len(pool.Thin.Messages) == 0 && has != is {
		return failed("Thin pool %s-%s-tpool (254:1) transaction_id is %d, while expected %d.", g.Name, name, is, has)
	}
	return nil
}

// deactivate removes a volume's device, and then the layers that nothing else needs.
func (n *Node) deactivate(g *group, name string) *failure {
	lv := g.find(name)
	if d := n.device(n.path(g, lv.UUID)); d != nil && d.opens > 0 {
		return failed("Logical volume %s/%s in use.", g.Name, name)
	}
	n.lower(g, name, "")
	n.lower(g, name, "-pool")
	pool := lv.Pool
	if lv.Thin != nil {
		pool = name
	}
	if pool == "" {
		for _, part := range g.parts(name) {
			n.lower(g, part, "")
		}
		return nil
	}
	for _, other := range g.LVs {
		if other.Pool == pool && n.path(g, other.UUID) != "" {
			return nil
		}
	}
	if n.raised(g, pool, "-pool") {
		return nil // lvcreate has activated the pool itself, too, which keeps it active
	}
	thin := g.find(pool).Thin
	n.lower(g, pool, "-tpool")
	n.lower(g, thin.Data, "-tdata")
	n.lower(g, thin.Metadata, "-tmeta")
	return nil
}

func (n *Node) lower(g *group, name, suffix string) {
	uuid := DeviceUUID(string(g.UUID), g.find(name).UUID) + suffix
	n.devices = slices.DeleteFunc(n.devices, func(d *device) bool { return d.UUID == uuid })
}

// path returns the device of a volume; "" if it is not active.
func (n *Node) path(g *group, lv string) string {
	for _, d := range n.devices {
		if d.UUID == DeviceUUID(string(g.UUID), lv) {
			return d.Path
		}
	}
	return ""
}

// status is the kernel's status of a device's first target (Linux, Documentation/admin-guide/device-mapper: dm-raid.rst,
// thin-provisioning.rst).
func (n *Node) status(d *device) (target, parameters string) {
	if d.status != "" {
		target, parameters, _ = strings.Cut(d.status, " ")
		return target, parameters
	}
	for _, g := range n.groups {
		lv := g.find(d.volume)
		if lv == nil || !strings.HasPrefix(d.UUID, DeviceUUID(string(g.UUID), lv.UUID)) {
			continue
		}
		switch {
		case lv.Thin != nil && strings.HasSuffix(d.UUID, "-tpool"):
			return "thin-pool", n.poolStatus(g, lv)
		case lv.Type == "thin":
			return "thin", fmt.Sprintf("%d -", n.filled[lv.UUID]/512)
		case strings.HasPrefix(lv.Type, "raid"):
			legs := len(lv.Segments[0].Areas)
			sectors := lvm.Bytes(g.find(lv.Segments[0].Areas[0].LV).Extents) * g.ExtentSize / 512
			return "raid", fmt.Sprintf("%s %d %s %d/%d idle 0 0 -", lv.Type, legs, strings.Repeat("A", legs), sectors, sectors)
		case lv.Type == "striped":
			return "striped", ""
		}
		return "linear", ""
	}
	return "", ""
}

// poolStatus counts metadata in blocks of 4 KiB and data in chunks.
func (n *Node) poolStatus(g *group, pool *lvm.LV) string {
	used := lvm.Bytes(0)
	for _, lv := range g.LVs {
		if lv.Pool == pool.Name {
			used += (n.filled[lv.UUID] + pool.Thin.ChunkSize - 1) / pool.Thin.ChunkSize
		}
	}
	total := lvm.Bytes(pool.Extents) * g.ExtentSize / pool.Thin.ChunkSize
	blocks := lvm.Bytes(g.find(pool.Thin.Metadata).Extents) * g.ExtentSize / (4 * lvm.KiB)
	root := "-"
	if n.kernelOf(pool).held {
		root = "17"
	}
	return fmt.Sprintf("%d %d/%d %d/%d %s rw discard_passdown error_if_no_space - 128", n.kernelOf(pool).transaction, 10+used/100, blocks, used, total, root)
}

// Fill writes the first bytes of a thin volume: its pool allocates blocks for them.
func (n *Node) Fill(path string, size lvm.Bytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.device(path)
	for _, g := range n.groups {
		if lv := g.find(d.volume); lv != nil && d.UUID == DeviceUUID(string(g.UUID), lv.UUID) {
			n.filled[lv.UUID] = size
		}
	}
}

// TakesNoWrites reports whether a volume's device is read-only, by LVM's permission.
func (n *Node) TakesNoWrites(path string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range n.groups {
		for _, lv := range g.LVs {
			if n.readOnly[lv.UUID] && n.path(g, lv.UUID) == path {
				return true
			}
		}
	}
	return false
}
