package engine

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// pvDevices records where the last read found the physical volumes of each group.
type pvDevices struct {
	mu        sync.Mutex
	groups    map[lvm.VGUUID][]string // paths of the devices with a group's physical volumes
	unlabeled []string                // State.Unlabeled
}

func (p *pvDevices) note(s lvm.State) {
	groups := make(map[lvm.VGUUID][]string, len(s.Groups))
	for _, g := range s.Groups {
		for _, pv := range g.PVs {
			groups[g.UUID] = append(groups[g.UUID], append(slices.Clone(pv.DuplicateDevices), pv.Device, pv.ReappearedDevice)...)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.groups, p.unlabeled = groups, s.Unlabeled
}

// without returns those of the devices that carry no physical volume of the group. One whose label is lost, or cannot be read now, may.
func (p *pvDevices) without(group lvm.VGUUID, devices []string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(devices), func(device string) bool {
		return slices.Contains(p.groups[group], device) || slices.Contains(p.unlabeled, device)
	})
}

// checkPVs refuses (KindConflict) a device that has a volume's UUID, and is not on physical volumes of the volume's group. The user of
// another storage driver's raw volume can write a group with a volume's UUIDs to it, and a node whose own LVM activates that gives them
// to the kernel. This check needs no process, and reads the disks only if the last reading does not confirm the device.
func (e *Engine) checkPVs(ctx context.Context, group lvm.VGUUID, device string) error {
	below, _, err := e.Machine.Kernel.DisksBelow(device)
	if err != nil {
		return lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: %w", device, err)
	}
	if e.Machine.Reader == nil || len(e.pvs.without(group, below)) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkPVsPatience)
	defer cancel()
	if _, err := e.ReadDisks(ctx); err != nil {
		return lvm.Errorf(lvm.KindBusy, "cannot confirm that device %s is the volume: %w", device, err)
	}
	if foreign := e.pvs.without(group, below); len(foreign) > 0 {
		return lvm.Errorf(lvm.KindConflict, "device %s has this volume's UUID, but the driver cannot confirm that it is the volume: it is on %s, where the driver finds no physical volume of volume group %s. If that disk fails, replace it; if it is another group's, find what activated the device (dmsetup ls --tree), and deactivate it there",
			device, strings.Join(foreign, ", "), group)
	}
	return nil
}

// checkPVsPatience is longer than a reading waits for a disk that never answered.
const checkPVsPatience = 15 * time.Second
