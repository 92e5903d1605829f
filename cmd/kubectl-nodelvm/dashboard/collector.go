package dashboard

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/report"
)

// pagesAtOnce limits concurrent reads of nodes: each costs the API server a forwarded port.
const pagesAtOnce = 16

// backOffLimit is the longest pause before a node that does not answer is read again.
const backOffLimit = 5 * time.Minute

// Collector reads the source in rounds while a page is open.
type Collector struct {
	source   Source
	interval time.Duration // between the starts of two rounds
	now      func() time.Time

	state *state
	nodes map[string]*known // only Run uses it
}

// known is what the collector knows of one node.
type known struct {
	answer   answer
	failures int
	next     time.Time // the earliest time of the next read
}

// NewCollector returns a collector that reads nothing before Run.
func NewCollector(source Source, interval time.Duration) *Collector {
	return &Collector{source: source, interval: interval, now: time.Now, state: newState(), nodes: map[string]*known{}}
}

// Run reads until ctx is done.
func (c *Collector) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-c.state.watched(): // read nothing while no page is open
		}
		began := c.now()
		c.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(c.interval-c.now().Sub(began), c.interval/10)):
		}
	}
}

// round reads the objects, and each node that is due.
func (c *Collector) round(ctx context.Context) {
	objects := c.source.Objects(ctx)
	names, err := c.source.Nodes(ctx)
	x := newIndex(objects)
	status := Status{Interval: c.interval.Seconds(), Limits: texts(objects.Limits)}
	if err != nil {
		status.Limits = append(status.Limits, text("The driver's pods cannot be listed, so no disk is shown: "+err.Error()))
	}
	shown := slices.Compact(slices.Sorted(slices.Values(slices.Concat(names, x.nodes()))))
	if len(shown) > maxNodes {
		status.Limits = append(status.Limits, "The cluster has more nodes than the page shows: the first 10000 by name are shown.")
		shown = shown[:maxNodes]
	}
	driver := map[string]bool{}
	for _, name := range names {
		driver[name] = true
	}
	c.forget(shown)
	status.Known = len(shown)
	for _, name := range shown {
		if !driver[name] {
			c.node(name).noDriver(err)
		}
		if k := c.node(name); k.answer.read || k.answer.error != "" {
			c.state.set(buildNode(name, k.answer, x)) // the objects may have changed
		}
	}
	c.publish(status)
	c.read(ctx, slices.DeleteFunc(shown, func(name string) bool { return !driver[name] }), x)
	if ctx.Err() == nil {
		status.Time = c.now()
		c.publish(status)
	}
}

func (c *Collector) node(name string) *known {
	if c.nodes[name] == nil {
		c.nodes[name] = &known{}
	}
	return c.nodes[name]
}

// forget drops nodes that neither the source nor an object names any more.
func (c *Collector) forget(shown []string) {
	keep := map[string]bool{}
	for _, name := range shown {
		keep[name] = true
	}
	for _, name := range slices.Collect(maps.Keys(c.nodes)) {
		if !keep[name] {
			delete(c.nodes, name)
			c.state.remove(name)
		}
	}
}

// read reads the nodes that are due. A reader of the page sees each answer when it arrives.
func (c *Collector) read(ctx context.Context, names []string, x *index) {
	var reading errgroup.Group
	reading.SetLimit(pagesAtOnce)
	for _, name := range names {
		k := c.node(name)
		if c.now().Before(k.next) {
			continue
		}
		reading.Go(func() error {
			page, err := c.source.Page(ctx, name)
			if ctx.Err() == nil {
				k.learn(page, err, c.now(), c.interval)
				c.state.set(buildNode(name, k.answer, x))
			}
			return nil
		})
	}
	_ = reading.Wait() // the answers hold the errors
}

// learn records an answer, or the error and the time of the next read.
func (k *known) learn(page report.Node, err error, now time.Time, interval time.Duration) {
	if err == nil {
		k.answer, k.failures, k.next = answer{page: page, read: true}, 0, time.Time{}
		return
	}
	k.answer.error = err.Error()
	k.failures++
	k.next = now.Add(backOff(interval, k.failures))
}

// backOff returns the pause after a number of consecutive failures.
func backOff(interval time.Duration, failures int) time.Duration {
	pause := interval
	for range failures - 1 {
		if pause *= 2; pause >= backOffLimit {
			return backOffLimit
		}
	}
	return min(pause, backOffLimit)
}

// noDriver records why a node that only objects name has no document; err is the error of listing the driver's pods.
func (k *known) noDriver(err error) {
	k.answer.error = "no pod of the driver is on this node"
	if err != nil {
		k.answer.error = "the disks of this node are not visible to you"
	}
}

func (c *Collector) publish(status Status) {
	for _, k := range c.nodes {
		if k.answer.read || k.answer.error != "" {
			status.Read++
		}
	}
	c.state.setStatus(status)
}
