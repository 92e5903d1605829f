package main

import (
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

// statusPage serves report.Node from the start of the process: its readers want to know why a node does not work.
type statusPage struct {
	ready     func(context.Context) error
	checks    func() (report.Checks, []string)
	mountable func() error  // why the kubelet cannot use the driver; nil: it can
	slots     chan struct{} // has a value for each reader

	mu       sync.Mutex
	document document
}

func newStatusPage(o *options, ready func(context.Context) error, registered func() report.Registration) *statusPage {
	look := nodeChecks{sys: "/sys", modules: "/lib/modules", mountinfo: "/proc/self/mountinfo", kubeletDir: o.kubeletDir, registered: registered}
	return &statusPage{ready: ready, checks: look.run, mountable: look.mountable, slots: make(chan struct{}, statusAtOnce), document: document{node: o.nodeName}}
}

// serve sets the document that the page shows.
func (p *statusPage) serve(d document) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.document = d
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
	d := p.document
	p.mu.Unlock()
	notReady := p.ready(ctx) // before the groups, which can take all the time: this says what the driver waits for
	page := d.read(ctx)
	if notReady != nil {
		page.NotReady = notReady.Error()
	}
	checks, unknown := p.checks()
	page.Checks, page.Unknown = checks, append(page.Unknown, unknown...)
	if d.host == nil {
		return page
	}
	for _, query := range classes {
		class, err := offersTo(ctx, d.host, query)
		if err != nil {
			page.Unknown = append(page.Unknown, "what the storage class "+class.Name+" can get: "+err.Error())
			continue
		}
		page.Classes = append(page.Classes, class)
	}
	return page
}

// offersTo returns the capacity of one class of the query. An error means that the capacity is unknown; a fault of the class
// itself is in Class.Error.
func offersTo(ctx context.Context, host nodeHost, query string) (report.Class, error) {
	name, parameters, err := report.ParseClass(query)
	answer := report.Class{Name: name}
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	var class lvm.Class
	if err == nil {
		class, err = controller.ParseClass(parameters, filesystem.CheckOptions)
	}
	if err == nil {
		if answer.Offers, err = host.CapacityByGroup(ctx, class); err != nil && lvm.KindOf(err) != lvm.KindInvalid {
			return answer, err
		}
	}
	if err != nil {
		answer.Error = err.Error()
	}
	return answer, nil
}
