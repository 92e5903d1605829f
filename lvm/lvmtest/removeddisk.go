package lvmtest

import (
	"maps"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
)

// ReplaceDevice removes the i-th disk of a group, counted from 0, and adds it again as another device, as a disk that is pulled and
// plugged in again: the active volumes on it still map the removed device.
func (n *Node) ReplaceDevice(group string, i int, device string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	pv := &g.PVs[i]
	for _, d := range n.devices {
		if lv := g.find(d.volume); lv != nil && slices.Contains(pvsOf(lv), pv.UUID) {
			if d.removed == nil {
				d.removed = map[string]string{}
			}
			d.removed[pv.UUID] = pv.Device
		}
	}
	pv.Device = device
}

// FailPool lets a thin pool of a group be in the kernel's fail mode, in which it stays for as long as it is active, as after a write to a disk
// that was removed.
func (n *Node) FailPool(group, pool string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	g := n.group(group)
	for _, d := range n.devices {
		if d.UUID == DeviceUUID(string(g.UUID), g.find(pool).UUID)+"-tpool" {
			d.status = "thin-pool Fail"
		}
	}
}

// failedPool reports whether a pool is active and in fail mode.
func (n *Node) failedPool(g *group, pool string) bool {
	uuid := DeviceUUID(string(g.UUID), g.find(pool).UUID) + "-tpool"
	return slices.ContainsFunc(n.devices, func(d *device) bool { return d.UUID == uuid && d.status == "thin-pool Fail" })
}

// mapPresent makes the devices of a volume and its parts map the present disks.
func (n *Node) mapPresent(g *group, name string) {
	for _, d := range n.devices {
		if slices.Contains(append(g.parts(name), name), d.volume) {
			d.removed = nil
		}
	}
}

func (k kernel) DisksBelow(path string) (below, removed []string, err error) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	top := k.node.device(path)
	if top == nil {
		return nil, nil, nil
	}
	for _, g := range k.node.groups {
		lv := g.find(top.volume)
		if lv == nil || top.UUID != DeviceUUID(string(g.UUID), lv.UUID) {
			continue
		}
		under := map[string]bool{}
		g.addParts(under, lv.Name)
		g.addParts(under, lv.Pool)
		for _, d := range k.node.devices {
			if part := g.find(d.volume); under[d.volume] && part != nil {
				removed = slices.AppendSeq(removed, maps.Values(d.removed))
				for _, pv := range g.PVs {
					if slices.Contains(pvsOf(part), pv.UUID) && d.removed[pv.UUID] == "" && pv.Device != "" {
						below = append(below, pv.Device)
					}
				}
			}
		}
	}
	return below, removed, nil
}

// pvsOf lists the physical volumes of an LV's own segments.
func pvsOf(lv *lvm.LV) (uuids []string) {
	for _, s := range lv.Segments {
		for _, a := range s.Areas {
			uuids = append(uuids, a.PV)
		}
	}
	return uuids
}
