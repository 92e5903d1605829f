package main

import (
	"context"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/disks"
	"github.com/nodelvm/nodelvm/report"
)

// volumeDetails adds to an inventory what LVM does not know: the file systems of volumes, the storage classes of their claims,
// and the disks of physical volumes.
type volumeDetails struct {
	fileSystems func(context.Context) (map[lvm.ID]report.FileSystem, error)
	class       func(volume string) string // of the claim that has the PersistentVolume of that name; nil: no API server
	disks       *disks.Registry            // nil: unknown
}

// classOf returns the agent's function that finds a volume's storage class; nil without an agent.
func classOf(agent *kube.Agent) func(volume string) string {
	if agent == nil {
		return nil
	}
	return agent.ClassOf
}

// addTo changes inv. After an error the inventory has no file systems.
func (d volumeDetails) addTo(ctx context.Context, inv *report.Inventory) error {
	if d.disks != nil {
		d.disks.AddTo(inv)
	}
	if d.fileSystems == nil || len(inv.Volumes) == 0 {
		return nil
	}
	mounted, err := d.fileSystems(ctx)
	for i := range inv.Volumes {
		v := &inv.Volumes[i]
		id, invalid := lvm.ParseID(v.ID)
		if f, found := mounted[id]; found && invalid == nil {
			v.FileSystem = &f
		}
		if d.class != nil {
			v.Class = d.class(v.Name)
		}
	}
	return err
}
