package main

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/disks"
	"github.com/nodelvm/nodelvm/report"
)

// nodeHost is what the document needs of host.Host.
type nodeHost interface {
	Inventory(ctx context.Context) (report.Inventory, error)
	CapacityByGroup(ctx context.Context, class lvm.Class) ([]report.Offer, error)
}

// document puts together what the driver knows about its node.
type document struct {
	node, cluster string
	host          nodeHost // nil: the driver starts
	health        findings
	details       volumeDetails
	compare       func() *report.Comparison // nil: no API server
}

// read returns the document without what a query adds, and without the checks of the node. It starts no LVM process while the driver can
// read the disks directly. Unknown has a sentence for each part that cannot be read.
func (d document) read(ctx context.Context) report.Node {
	n := report.Node{Node: d.node, Version: version, Cluster: d.cluster, Time: time.Now().UTC(), Conditions: []report.Condition{}}
	if d.host == nil {
		return n
	}
	unknown := func(what string, err error) {
		if err != nil {
			n.Unknown = append(n.Unknown, what+err.Error())
		}
	}
	if d.compare != nil {
		n.Comparison = d.compare()
	}
	var err error
	if n.Inventory, err = d.host.Inventory(ctx); err == nil && d.compare != nil {
		n.Comparison = stillThere(n.Comparison, n.Inventory)
	}
	unknown(report.UnknownGroups, err)
	var found []lvm.Condition
	var unchecked error
	var checks sync.WaitGroup
	// Both may wait for the same blocked device: one after the other they would take more time than a scrape has.
	checks.Go(func() { found, unchecked = d.health(ctx) })
	if err == nil || len(n.Groups) > 0 { // else each recorded disk would count as lost
		unknown("the file systems of the volumes: ", d.details.addTo(ctx, &n.Inventory))
	}
	checks.Wait()
	unknown("the conditions of the volumes: ", unchecked)
	for _, f := range found {
		n.Conditions = append(n.Conditions, conditionOf(f))
	}
	return n
}

// stillThere leaves out the volumes that were removed since the comparison, and adds the creation times of the others.
func stillThere(c *report.Comparison, now report.Inventory) *report.Comparison {
	created := map[string]time.Time{}
	for _, v := range now.Volumes {
		if v.State == string(lvm.StateReady) {
			created[v.ID] = v.Created
		}
	}
	for _, sn := range now.Snapshots {
		if sn.State == string(lvm.StateReady) {
			created[sn.ID] = sn.Created
		}
	}
	left := []report.Unreferenced{}
	for _, u := range c.Unreferenced {
		when, there := created[u.Handle]
		if u.Created = when; there || len(now.Unread) > 0 {
			left = append(left, u)
		}
	}
	c.Unreferenced = left
	return c
}

func conditionOf(f lvm.Condition) report.Condition {
	c := report.Condition{Type: string(f.Type), Group: f.Group, Pool: f.Pool, Text: f.Text, Severity: f.Type.Severity(),
		GroupUUID: cmp.Or(f.VG, f.Volume.ID.VG), Claim: f.Volume.Claim}
	if f.Volume.UUID != "" {
		c.Volume = f.Volume.ID.String()
	}
	return c
}

// volumeDetails adds to an inventory what LVM does not know: the file systems of volumes, the storage classes of their claims,
// and the disks of physical volumes.
type volumeDetails struct {
	fileSystems func(context.Context) (map[lvm.ID]report.FileSystem, error)
	io          func(context.Context) (map[lvm.ID]report.IO, error) // nil: not read
	class       func(volume string) string                          // of the claim that has the PersistentVolume of that name; nil: no API server
	disks       *disks.Registry                                     // nil: unknown
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
	if d.io != nil {
		err = errors.Join(err, d.addIO(ctx, inv))
	}
	byHandle := make(map[string]report.FileSystem, len(mounted))
	for id, f := range mounted {
		byHandle[id.String()] = f
	}
	for i := range inv.Volumes {
		v := &inv.Volumes[i]
		if f, found := byHandle[v.ID]; found {
			v.FileSystem = &f
		}
		if d.class != nil {
			v.Class = d.class(v.Name)
		}
	}
	return err
}

func (d volumeDetails) addIO(ctx context.Context, inv *report.Inventory) error {
	counted, err := d.io(ctx)
	byHandle := make(map[string]report.IO, len(counted))
	for id, c := range counted {
		byHandle[id.String()] = c
	}
	for i := range inv.Volumes {
		if c, found := byHandle[inv.Volumes[i].ID]; found {
			inv.Volumes[i].IO = &c
		}
	}
	return err
}
