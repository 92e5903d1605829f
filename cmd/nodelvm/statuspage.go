package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/controller"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/report"
)

// People read the page now and then: two at a time, and no longer than they would wait.
const (
	statusAtOnce  = 2
	statusTimeout = 8 * time.Second
)

// statusHost is what the page needs of host.Host.
type statusHost interface {
	Inventory(ctx context.Context) (report.Inventory, error)
	CapacityByGroup(ctx context.Context, class lvm.Class) ([]report.Offer, error)
}

// statusPage serves report.Node from the start of the process: its readers want to know why a node does not work.
type statusPage struct {
	node      string
	ready     func(context.Context) error
	checks    func() (report.Checks, []string)
	mountable func() error  // why the kubelet cannot use the driver; nil: it can
	slots     chan struct{} // has a value for each reader

	mu      sync.Mutex
	cluster string
	host    statusHost // nil until serving
	health  findings
	details volumeDetails
	compare func() *report.Comparison // nil: no API server
}

func newStatusPage(o *options, ready func(context.Context) error, registered func() report.Registration) *statusPage {
	look := nodeChecks{sys: "/sys", modules: "/lib/modules", mountinfo: "/proc/self/mountinfo", kubeletDir: o.kubeletDir, registered: registered}
	return &statusPage{node: o.nodeName, ready: ready, checks: look.run, mountable: look.mountable, slots: make(chan struct{}, statusAtOnce)}
}

// serve sets the host that the page describes.
func (p *statusPage) serve(cluster string, host statusHost, health findings, details volumeDetails, compare func() *report.Comparison) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cluster, p.host, p.health, p.details, p.compare = cluster, host, health, details, compare
}

// ServeHTTP implements http.Handler. It starts no LVM process while the driver can read the disks directly.
func (p *statusPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
	defer cancel()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		http.Error(w, "too many readers of this page; retry later", http.StatusServiceUnavailable)
		return
	}
	page := p.page(ctx, r.URL.Query()["class"])
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page) // the reader may have gone
}

func (p *statusPage) page(ctx context.Context, classes []string) report.Node {
	p.mu.Lock()
	host, health, details, compare := p.host, p.health, p.details, p.compare
	page := report.Node{Node: p.node, Version: version, Cluster: p.cluster, Time: time.Now().UTC(), Conditions: []report.Condition{}}
	p.mu.Unlock()
	unknown := func(what string, err error) {
		if err != nil {
			page.Unknown = append(page.Unknown, what+err.Error())
		}
	}
	if err := p.ready(ctx); err != nil {
		page.NotReady = err.Error()
	}
	page.Checks, page.Unknown = p.checks()
	if host == nil {
		return page
	}
	var err error
	if compare != nil {
		page.Comparison = compare()
	}
	if page.Inventory, err = host.Inventory(ctx); err == nil && compare != nil {
		page.Comparison = stillThere(page.Comparison, page.Inventory)
	}
	unknown(report.UnknownGroups, err)
	unknown("the file systems of the volumes: ", details.addTo(ctx, &page.Inventory))
	found, err := health(ctx)
	unknown("the conditions of the volumes: ", err)
	for _, f := range found {
		page.Conditions = append(page.Conditions, pageCondition(f))
	}
	for _, class := range classes {
		told, err := offersTo(ctx, host, class)
		if unknown("what the storage class "+told.Name+" can get: ", err); err == nil {
			page.Classes = append(page.Classes, told)
		}
	}
	return page
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

func pageCondition(f lvm.Condition) report.Condition {
	told := report.Condition{Type: string(f.Type), Group: f.Group, Pool: f.Pool, Text: f.Text, Severity: f.Type.Severity(),
		GroupUUID: cmp.Or(f.VG, f.Volume.ID.VG), Claim: f.Volume.Claim}
	if f.Volume.UUID != "" {
		told.Volume = f.Volume.ID.String()
	}
	return told
}

// offersTo returns the capacity of one class of the query. An error means that the capacity is unknown; a fault of the class
// itself is in Class.Error.
func offersTo(ctx context.Context, host statusHost, query string) (report.Class, error) {
	name, parameters, err := report.ParseClass(query)
	told := report.Class{Name: name}
	if ctx.Err() != nil {
		return told, ctx.Err()
	}
	var class lvm.Class
	if err == nil {
		class, err = controller.ParseClass(parameters, filesystem.CheckOptions)
	}
	if err == nil {
		if told.Offers, err = host.CapacityByGroup(ctx, class); err != nil && lvm.KindOf(err) != lvm.KindInvalid {
			return told, err
		}
	}
	if err != nil {
		told.Error = err.Error()
	}
	return told, nil
}
