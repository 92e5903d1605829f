package ondisk

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
)

// maxRounds limits the rounds of accept: an accepted PV lists others, and a device can get another label meanwhile.
const maxRounds = 16

// Accepts reports whether the node's record names this PV on this device. Until it does, nothing but the label is read.
func (d *Disks) Accepts(device BlockDevice, pv string) bool {
	return d.Accepted == nil || d.Accepted.Names(pv, d.identities.of(d.positions().Sys, device))
}

// accept leaves out the devices that the node's record does not name: as if they had no metadata. It first records those that the rules
// accept, and reads their metadata; these may list more. others is what the State says of the devices that it leaves out.
func (d *Disks) accept(ctx context.Context, probes []probe, devices *blockDevices, r prober) (own []probe, others lvm.State, err error) {
	if d.Accepted == nil {
		return probes, lvm.State{Unlabeled: d.unlabeled(probes, r)}, nil
	}
	for range maxRounds {
		candidates, of := d.candidates(probes, devices.component)
		admitted, refused, undecided := d.decide(candidates, of, probes)
		if undecided != nil {
			others.UnreadDevices = []string{fmt.Sprintf("no disk of this node is accepted yet: %v", undecided)}
			break
		}
		others.Unaccepted = refused
		if len(admitted) == 0 {
			break
		}
		again, err := d.scanDevices(ctx, admitted, r)
		if err != nil {
			return nil, lvm.State{}, err
		}
		for _, p := range again {
			i := slices.IndexFunc(probes, func(old probe) bool { return old.device == p.device })
			probes[i] = p
		}
	}
	slices.SortFunc(others.Unaccepted, func(a, b lvm.UnacceptedPV) int { return cmp.Compare(a.Device, b.Device) })
	for i := range probes {
		p := &probes[i]
		if p.hidden != nil && d.Accepts(p.device, p.hidden.uuid) {
			p.err = fmt.Errorf("it has the physical volume %s and a partition table, for which LVM ignores the disk. If no partition of it is needed, remove the table: wipefs -a -t dos %s", p.hidden.uuid, p.device.Path)
		}
	}
	others.Unlabeled = d.unlabeled(probes, r)
	return slices.DeleteFunc(probes, d.isForeign), others, nil
}

// unlabeled returns the paths of the devices without a label that may have had one: those that the record names; without a record, all.
func (d *Disks) unlabeled(probes []probe, r prober) (paths []string) {
	for _, p := range probes {
		if p.MadeOf == MadeOfDisks && p.label == nil && p.err == nil && (d.Accepted == nil || d.Accepted.NamesDevice(d.identities.of(r.positions.Sys, p.device))) {
			paths = append(paths, p.device.Path)
		}
	}
	return paths
}

// candidates returns the devices with a label that the record does not name, without the parts of other devices.
func (d *Disks) candidates(probes []probe, component func(string) (bool, error)) (list []accepted.Candidate, of []BlockDevice) {
	var whole []probe
	devices := map[string]int{} // of a PV
	for _, p := range probes {
		if p.MadeOf != MadeOfDisks || p.label == nil {
			continue
		}
		if part, err := component(p.device.Name); !part || err != nil {
			whole = append(whole, p)
			devices[p.label.uuid]++
		}
	}
	for _, p := range whole {
		if p.unresponsive() || !p.unaccepted && d.Accepts(p.device, p.label.uuid) {
			continue
		}
		id := d.identities.of(d.positions().Sys, p.device)
		if id == (accepted.Identity{}) {
			continue // it was removed
		}
		list = append(list, accepted.Candidate{Device: p.device.Path, PV: p.label.uuid, Identity: id, Listed: isListedBy(probes, p.label.uuid), Copied: devices[p.label.uuid] > 1})
		of = append(of, p.device)
	}
	return list, of
}

// isListedBy reports whether the metadata on an accepted device lists a PV.
func isListedBy(probes []probe, pv string) bool {
	return slices.ContainsFunc(probes, func(p probe) bool {
		return slices.ContainsFunc(p.areas, func(a area) bool {
			if a.text == nil {
				return false // the PV is in no group
			}
			im, err := a.text.read()
			if err != nil {
				return false
			}
			_, lists := im.needs[pv]
			return lists
		})
	})
}

// decide asks the record about the candidates, except those that it refused a moment ago. undecided: nothing is recorded yet, and the volumes of
// pods are unknown. That is no first use, which would shut out the node's own disks.
func (d *Disks) decide(candidates []accepted.Candidate, of []BlockDevice, probes []probe) (admitted []BlockDevice, refused []lvm.UnacceptedPV, undecided error) {
	first := d.Accepted.First()
	var ask []accepted.Candidate
	for i, c := range candidates {
		if _, _, valid := d.Accepted.Refused(c); !valid && !d.Accepts(of[i], c.PV) {
			ask = append(ask, c)
		}
	}
	if first || len(ask) > 0 {
		held, err := d.positions().podVolumes(d.Accepted.KubeletDir)
		if err != nil {
			err = fmt.Errorf("the driver cannot determine which devices the pods of this node use: %w", err)
		}
		if first && err != nil {
			return nil, nil, err
		}
		survey(ask, held, err)
		var unread []accepted.Entry
		if first {
			unread = d.unread(probes, held)
		}
		d.Accepted.Admit(ask, unread)
	}
	for i, c := range candidates {
		if d.Accepts(of[i], c.PV) {
			admitted = append(admitted, of[i])
		} else if v, since, _ := d.Accepted.Refused(c); !v.Expected {
			refused = append(refused, lvm.UnacceptedPV{Device: c.Device, PV: c.PV, Identity: c.Identity.String(), Reason: v.Refusal, Since: since})
		}
	}
	return admitted, refused, nil
}

// recorded says which ignored physical volumes the record names, and no accepted device has.
func (d *Disks) recorded(ignored []lvm.UnacceptedPV, groups []lvm.Group) []lvm.UnacceptedPV {
	for i := range ignored {
		u := &ignored[i]
		u.Recorded = slices.ContainsFunc(d.Accepted.Entries(), func(e accepted.Entry) bool { return e.PV == u.PV }) &&
			!slices.ContainsFunc(groups, func(g lvm.Group) bool {
				return slices.ContainsFunc(g.PVs, func(pv lvm.PV) bool { return pv.UUID == u.PV && pv.Device != "" })
			})
	}
	return ignored
}

// survey adds to the candidates what the node's kernel and kubelet show of them; err: they do not.
func survey(candidates []accepted.Candidate, held podVolumes, err error) {
	for i := range candidates {
		c := &candidates[i]
		if err != nil {
			c.Unknown = err.Error()
			continue
		}
		c.Held, c.Remote = held.explain(filepath.Base(c.Device)), held.isRemote(filepath.Base(c.Device))
	}
}

// unread returns entries for the disks that could not be read, without the volumes of pods.
func (d *Disks) unread(probes []probe, held podVolumes) (entries []accepted.Entry) {
	for _, p := range probes {
		if p.MadeOf != MadeOfDisks || p.label != nil || p.err == nil || held.explain(p.device.Name) != "" {
			continue
		}
		if id, known := d.identities.soon(d.positions().Sys, p.device); known && id != (accepted.Identity{}) {
			entries = append(entries, accepted.Entry{Device: p.device.Path, Identity: id, Reason: accepted.FirstUse})
		}
	}
	return entries
}

// isForeign reports whether a device concerns no group of this node: the record does not name its PV or, if its label cannot be read, the
// device, and the node has another storage driver. An unresponsive device is what it was: it may be gone, with its identity. LVM gets no
// device without a label.
func (d *Disks) isForeign(p probe) bool {
	switch {
	case p.label != nil && p.unresponsive():
		return p.unaccepted
	case p.label != nil && p.MadeOf == MadeOfDisks:
		return !d.Accepts(p.device, p.label.uuid)
	case p.err == nil:
		return p.MadeOf == MadeOfDisks // else it is reported in State.Skipped
	}
	id, known := d.identities.soon(d.positions().Sys, p.device)
	return known && !d.Accepted.NamesDevice(id) && !d.Accepted.Trusts()
}

// AcceptDevice records the PV on a device for which an admin vouches. KindConflict: it is no PV of the node, or a volume of a pod.
func (d *Disks) AcceptDevice(ctx context.Context, path string, reason accepted.Reason) (accepted.Entry, error) {
	state, err := d.Read(ctx) // the first use, if there was none
	if err != nil {
		return accepted.Entry{}, err
	}
	if d.Accepted.First() {
		return accepted.Entry{}, lvm.Errorf(lvm.KindBusy, "%s", strings.Join(state.UnreadDevices, "; "))
	}
	r := d.prober()
	devices, err := d.scanner.scan(ctx, r.positions.Sys, r.positions.Proc, r.positions.Dev)
	if err != nil {
		return accepted.Entry{}, err
	}
	r.positions.volumes = devices.volumes
	device, err := devices.at(path)
	if err != nil {
		return accepted.Entry{}, err
	}
	p := r.probe(device, probe{})
	held, err := r.positions.podVolumes(d.Accepted.KubeletDir)
	part, partErr := devices.component(device.Name)
	switch {
	case p.MadeOf != MadeOfDisks:
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s can have no physical volume of this node: %s", path, p.Reason)
	case p.label == nil && p.err != nil:
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s cannot be read: %w", path, p.err)
	case p.label == nil:
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s is no physical volume: create one first, with pvcreate or vgcreate", path)
	case err != nil || partErr != nil:
		return accepted.Entry{}, lvm.Errorf(lvm.KindInternal, "cannot determine what uses %s: %w", path, cmp.Or(err, partErr))
	case part:
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s is a part of another device (RAID, multipath): accept that one", path)
	case held.explain(device.Name) != "":
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s is not accepted: %s", path, held.explain(device.Name))
	}
	if original, group := deviceOf(state, p.label.uuid); original != "" && original != device.Path {
		return accepted.Entry{}, lvm.Errorf(lvm.KindConflict, "%s is not accepted: its physical volume %s is also on %s, which volume group %s uses. If %s replaces that disk, first detach the disk or remove its label (wipefs)",
			path, p.label.uuid, original, group, path)
	}
	return d.Vouch(device, p.label.uuid, reason)
}

// deviceOf returns the device with a PV of this node's groups, and its group; "": none has it.
func deviceOf(state lvm.State, pv string) (device string, group lvm.VGName) {
	for _, g := range state.Groups {
		for _, has := range g.PVs {
			if has.UUID == pv && !has.Missing {
				return has.Device, g.Name
			}
		}
	}
	return "", ""
}

// Vouch records a PV on a device. Without a record it does nothing.
func (d *Disks) Vouch(device BlockDevice, pv string, reason accepted.Reason) (accepted.Entry, error) {
	if d.Accepted == nil {
		return accepted.Entry{}, nil
	}
	id, err := accepted.Identify(d.positions().Sys, device.Name)
	if err != nil {
		return accepted.Entry{}, lvm.Errorf(lvm.KindInternal, "cannot identify %s: %w", device.Path, err)
	}
	e := accepted.Entry{PV: pv, Device: device.Path, Identity: id, Reason: reason}
	return e, d.Accepted.Accept(e)
}

// at returns the listed device at a path.
func (b *blockDevices) at(path string) (BlockDevice, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return BlockDevice{}, lvm.Errorf(lvm.KindInvalid, "cannot find the device %s: %w", path, err)
	}
	for _, d := range b.list {
		if d.Path == path || st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == d.number {
			return d, nil
		}
	}
	return BlockDevice{}, lvm.Errorf(lvm.KindInvalid, "%s is no block device that can have a physical volume", path)
}
