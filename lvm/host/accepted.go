package host

import (
	"context"
	"slices"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/accepted"
	"github.com/nodelvm/nodelvm/report"
)

// recordOf returns the record of accepted physical volumes that a config names; nil: none.
func recordOf(cfg lvm.Config) *accepted.Record {
	if cfg.Accepted.File == "" {
		return nil
	}
	a := cfg.Accepted
	return &accepted.Record{File: a.File, KubeletDir: a.KubeletDir, Driver: a.Driver, DevicesFile: a.DevicesFile, ReadOnly: cfg.AdminCLI, Log: cfg.Log}
}

// AcceptDevice records the physical volume on a device for which an admin vouches, and returns its UUID. KindConflict: the device has none
// that can be one of this node, or it is a volume of a pod.
func (h *Host) AcceptDevice(ctx context.Context, path string) (pv string, err error) {
	h.disks.Accepted.ReadOnly = false
	e, err := h.disks.AcceptDevice(ctx, path, accepted.Command)
	return e.PV, err
}

// ForgetPV drops a physical volume from the record, before its disk goes to another owner. KindInUse: it is in a volume group of this node.
// KindNotFound: the record does not have it.
func (h *Host) ForgetPV(ctx context.Context, pv string) error {
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return err
	}
	for _, g := range s.Groups {
		if slices.ContainsFunc(g.PVs, func(has lvm.PV) bool { return has.UUID == pv && !has.Missing }) {
			return lvm.Errorf(lvm.KindInUse, "physical volume %s is in volume group %s: remove it from the group first (vgreduce, vgremove), or detach its disk", pv, g.Name)
		}
	}
	h.disks.Accepted.ReadOnly = false
	forgotten, err := h.disks.Accepted.Forget(func(e accepted.Entry) bool { return e.PV == pv })
	if err == nil && len(forgotten) == 0 {
		return lvm.Errorf(lvm.KindNotFound, "the record has no physical volume %s", pv)
	}
	return err
}

// AcceptedPVs lists the physical volumes of the record, in the order in which they were recorded.
func (h *Host) AcceptedPVs(ctx context.Context) ([]lvm.AcceptedPV, []lvm.UnacceptedPV, error) {
	s, err := h.engine.ReadDisks(ctx)
	if err != nil {
		return nil, nil, err
	}
	var list []lvm.AcceptedPV
	for _, e := range h.disks.Accepted.Entries() {
		a := lvm.AcceptedPV{PV: e.PV, Device: e.Device, Identity: e.Identity.String(), Reason: string(e.Reason)}
		for _, g := range s.Groups {
			for _, pv := range g.PVs {
				if pv.UUID == e.PV && pv.Device != "" {
					a.Device, a.Group = pv.Device, g.Name
				}
			}
		}
		list = append(list, a)
	}
	return list, s.Unaccepted, nil
}

// addReasons adds to the PVs of an inventory why the record accepts them.
func (h *Host) addReasons(inv *report.Inventory) {
	if h.disks.Accepted == nil {
		return
	}
	reasons := map[string]string{}
	for _, e := range h.disks.Accepted.Entries() {
		reasons[e.PV] = string(e.Reason)
	}
	for i := range inv.Groups {
		for j := range inv.Groups[i].PVs {
			pv := &inv.Groups[i].PVs[j]
			pv.Accepted = reasons[pv.UUID]
		}
	}
}
