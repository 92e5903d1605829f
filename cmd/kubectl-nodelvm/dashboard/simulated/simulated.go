// Package simulated provides a dashboard.Source without a cluster. It has any number of nodes, and the same ones in each run.
package simulated

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/cmd/kubectl-nodelvm/dashboard"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

const (
	gib     = lvm.Bytes(1 << 30)
	extent  = lvm.Bytes(4 << 20)
	cluster = "7e57c1a5-0000-4000-8000-000000000001"
	group   = "vg-data"
	pool    = "nodelvm-thin"
)

// Start is the time of all status pages.
var Start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Source is a simulated cluster.
type Source struct {
	mu      sync.Mutex
	names   []string
	pages   map[string]report.Node
	errors  map[string]error
	objects dashboard.Objects
	events  []dashboard.Event
}

// New returns a cluster of sound nodes and a few faulty ones, each with this number of volumes.
func New(nodes, volumes int) *Source {
	s := &Source{pages: map[string]report.Node{}, errors: map[string]error{}, objects: dashboard.Objects{Pods: map[string][]string{}}}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i+1)
		s.names = append(s.names, name)
		s.pages[name] = s.page(i, name, volumes)
		if i%97 == 8 {
			s.errors[name] = fmt.Errorf("the driver (pod nodelvm-%s) has not answered within 10s", name)
		}
	}
	s.events = []dashboard.Event{{Time: Start.Add(-time.Hour), Type: "Normal", Reason: "ProvisioningSucceeded", Object: "PersistentVolumeClaim",
		Message: "Successfully provisioned volume", Count: 1}}
	return s
}

// Nodes lists the nodes.
func (s *Source) Nodes(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names), nil
}

// Page returns a node's status page.
func (s *Source) Page(_ context.Context, node string) (report.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pages[node], s.errors[node]
}

// Objects returns a copy of the objects.
func (s *Source) Objects(context.Context) dashboard.Objects {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects
	o.Volumes, o.Claims, o.Pods = slices.Clone(o.Volumes), slices.Clone(o.Claims), maps.Clone(o.Pods)
	return o
}

// Events returns the same events for every claim.
func (s *Source) Events(_ context.Context, _, claim string, _ []string) ([]dashboard.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if claim == "" {
		return nil, errors.New("no claim is named")
	}
	list := slices.Clone(s.events)
	for i := range list {
		list[i].Object += " " + claim
	}
	return list, nil
}

// Change changes a node's status page.
func (s *Source) Change(node string, change func(page *report.Node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := s.pages[node]
	page.Volumes, page.Conditions, page.Groups = slices.Clone(page.Volumes), slices.Clone(page.Conditions), slices.Clone(page.Groups)
	change(&page)
	s.pages[node] = page
}

// ChangeObjects changes the objects and the events.
func (s *Source) ChangeObjects(change func(o *dashboard.Objects, events *[]dashboard.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.objects, &s.events)
}

// Silence makes reading a node fail with err.
func (s *Source) Silence(node string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errors[node] = err
}

// layout allocates extents on the disks of one node.
type layout struct {
	random *rand.Rand
	pvs    []report.PV
	at     []int64 // the next extent of each disk
	uuid   string
}

func (l *layout) put(disk int, count int64, lv, owner string) {
	pv := &l.pvs[disk]
	if l.random.IntN(5) == 0 { // free extents of a deleted volume
		l.hole(disk, min(int64(l.random.IntN(2000)+64), pv.Extents-l.at[disk]-count))
	}
	pv.Allocated = append(pv.Allocated, report.ExtentRange{Start: l.at[disk], Count: count, LV: lv, Owner: owner})
	l.at[disk] += count
}

func (l *layout) hole(disk int, count int64) {
	if count > 0 {
		l.pvs[disk].Free = append(l.pvs[disk].Free, report.ExtentRange{Start: l.at[disk], Count: count})
		l.at[disk] += count
	}
}

// emptiest returns the disk with the most free extents at its end.
func (l *layout) emptiest() (best int) {
	for i := range l.pvs {
		if l.pvs[i].Extents-l.at[i] > l.pvs[best].Extents-l.at[best] {
			best = i
		}
	}
	return best
}

func (s *Source) page(i int, name string, volumes int) report.Node {
	random := rand.New(rand.NewPCG(uint64(i), 7)) // a test's data, not a secret
	l := &layout{random: random, uuid: fmt.Sprintf("vgSim0-%04d-0000-0000-0000-0000-000000", i), at: make([]int64, 3)}
	for d := range 3 {
		device := fmt.Sprintf("/dev/nvme%dn1", d)
		if d == 2 {
			device = "/dev/sda"
		}
		l.pvs = append(l.pvs, report.PV{UUID: fmt.Sprintf("pvSim%d-%04d", d, i), Device: device, Extents: int64([]lvm.Bytes{894, 894, 1788}[d] * gib / extent),
			Disk: &report.Disk{Path: device, Model: []string{"Simulated NVMe 960", "Simulated NVMe 960", "Simulated SATA 1920"}[d], Serial: fmt.Sprintf("SIM%d%04d", d, i), Slot: fmt.Sprint(d)}})
	}
	page := report.Node{Node: name, Version: "v0.1.0", Cluster: cluster, Time: Start, Checks: report.Checks{Kernel: "6.12.0-1-amd64"}}
	poolSize := 256 * gib
	l.put(0, int64(poolSize/extent), pool+"_tdata", pool)
	l.put(0, 256, pool+"_tmeta", pool)
	p := report.Pool{Name: pool, Size: poolSize, MetadataSize: gib, MetadataUsed: gib / 9, Zero: true, State: report.PoolWorks}
	for v := range volumes {
		s.volume(&page, l, &p, i, v)
	}
	for d := range l.pvs {
		l.hole(d, l.pvs[d].Extents-l.at[d])
	}
	g := report.Group{Name: group, UUID: lvm.VGUUID(l.uuid), Tags: []string{"fast"}, Disks: 3, ExtentSize: extent, MetadataSize: 64 << 20, MetadataFree: 60 << 20,
		PVs: l.pvs, Pools: []report.Pool{p}}
	for _, pv := range l.pvs {
		g.Size += lvm.Bytes(pv.Extents) * extent
		for _, free := range pv.Free {
			g.Free += lvm.Bytes(free.Count) * extent
		}
	}
	page.Groups = []report.Group{g}
	s.fault(&page, i)
	return page
}

var apps = []string{"shop/data-postgres", "metrics/prometheus-db", "queue/data-kafka", "search/data-opensearch", "cache/redis", "ci/workspace", "logs/loki-chunks"}

// volume adds a volume with its objects; its number decides the layout.
func (s *Source) volume(page *report.Node, l *layout, p *report.Pool, node, number int) {
	size := lvm.Bytes(8+l.random.IntN(80)) * gib
	lv := fmt.Sprintf("pvc-%08x-%04x-4%03x-8000-%012x", uint32(node*7919+number*104729), number, node%4096, node*1000+number)
	v := report.Volume{ID: l.uuid + "/" + lv, UUID: fmt.Sprintf("lvSim-%d-%d", node, number), Group: group, LV: lv, Name: lv, Cluster: cluster,
		State: "ready", Layout: "linear", Size: size, Created: Start.Add(-time.Duration(l.random.IntN(9000)) * time.Hour)}
	claim := fmt.Sprintf("%s-%d", apps[(node+number)%len(apps)], node)
	if number >= len(apps) {
		claim = fmt.Sprintf("%s-%d-%d", apps[(node+number)%len(apps)], node, number)
	}
	v.Claim = claim
	count := int64(size / extent)
	switch number % 5 {
	case 1:
		v.Layout, v.Pool = "thin", p.Name
		used := size * lvm.Bytes(5+l.random.IntN(60)) / 100
		v.Used = &used
		p.Used, p.Provisioned = min(p.Used+used, p.Size), p.Provisioned+size
		page.Snapshots = append(page.Snapshots, report.Snapshot{ID: l.uuid + "/snap-" + lv, Group: group, LV: "snap-" + lv, Name: "snapshot-" + lv[4:],
			Cluster: cluster, State: "ready", Source: v.ID, Size: size, Created: Start.Add(-time.Hour)})
	case 2:
		v.Layout = "raid1"
		for leg := range 2 {
			l.put(leg, 1, fmt.Sprintf("%s_rmeta_%d", lv, leg), lv)
			l.put(leg, count, fmt.Sprintf("%s_rimage_%d", lv, leg), lv)
		}
	case 3:
		v.Layout = "striped"
		l.put(0, count/2, lv, "")
		l.put(1, count/2, lv, "")
	default:
		l.put(l.emptiest(), count, lv, "")
	}
	v.FileSystem = &report.FileSystem{Type: "ext4", Size: size, Available: size * lvm.Bytes(20+number%60) / 100, Inodes: 1000, InodesUsed: int64(number)}
	class := map[string]string{"linear": "local", "thin": "local-thin", "raid1": "local-mirrored", "striped": "local-striped"}[v.Layout]
	if number%11 == 10 {
		v.State = "deleting"
		page.WipeBacklog += size / 3
	} else {
		s.objects.Volumes = append(s.objects.Volumes, dashboard.Volume{Name: lv, Handle: v.ID, Node: page.Node, Claim: claim, Class: class, Phase: "Bound", Size: size})
		_, name, _ := strings.Cut(claim, "/")
		s.objects.Pods[claim] = []string{strings.TrimPrefix(name, "data-")}
	}
	page.Volumes = append(page.Volumes, v)
}

// fault adds a fault to some nodes.
func (s *Source) fault(page *report.Node, i int) {
	find := func(condition, volume, message string) {
		page.Conditions = append(page.Conditions, report.Condition{Type: condition, Group: group, Volume: volume, Text: message})
	}
	switch {
	case i%41 == 3:
		page.Groups[0].Pools[0].Used = page.Groups[0].Pools[0].Size * 91 / 100
		page.Conditions = append(page.Conditions, report.Condition{Type: "ThinPoolNearlyFull", Group: group, Pool: pool, Text: "thin pool vg-data/nodelvm-thin is nearly full: data 91% of 256 GiB"})
	case i%61 == 5:
		page.Groups[0].PVs[2].Missing, page.Groups[0].PVs[2].Device = true, ""
		find("PhysicalVolumeMissing", "", "physical volume "+page.Groups[0].PVs[2].UUID+" is missing")
		find("VolumeDataMissing", page.Volumes[0].ID, "a part of the volume's data is on a missing physical volume")
	case i%53 == 1 && len(page.Volumes) > 2:
		find("VolumeDegraded", page.Volumes[2].ID, "RAID volume has lost a leg; all its data is there")
	}
}
