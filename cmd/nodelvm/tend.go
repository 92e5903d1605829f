package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/node"
)

// tendPeriod is how often the thin pools are looked at: the kernel is asked, no process is started.
const tendPeriod = 10 * time.Second

// caretaker keeps the node's groups and pools as they are declared: it takes in disks that come later, and enlarges pools
// that fill up.
type caretaker struct {
	host  *lvm.Host
	file  string        // of the declarations; "": none
	every time.Duration // how often new disks are looked for; 0: once, at the start
	log   *slog.Logger

	mu     sync.Mutex
	failed []lvm.Finding
	told   string
}

// run works until ctx ends.
func (c *caretaker) run(ctx context.Context) {
	c.prepare(ctx)
	tend := time.NewTicker(tendPeriod)
	defer tend.Stop()
	var look <-chan time.Time
	if c.every > 0 && c.file != "" {
		ticker := time.NewTicker(c.every)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-look:
			c.prepare(ctx)
		case <-tend.C:
			if err := c.host.TendPools(ctx); err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "a thin pool could not be enlarged; it is tried again", "error", err)
			}
		}
	}
}

// prepare looks for new disks. What was found is logged when it changes.
func (c *caretaker) prepare(ctx context.Context) {
	if c.file == "" {
		return
	}
	var report lvm.PrepareReport
	declared, err := readDeclarations(c.file)
	if err == nil {
		report, err = c.host.Prepare(ctx, lvm.Preparation{Declared: declared, Signatures: node.Signatures})
	}
	if ctx.Err() != nil {
		return
	}
	var failed []lvm.Finding
	if err != nil {
		failed = append(failed, lvm.Finding{Trouble: lvm.TroubleUnprepared, Text: fmt.Sprintf("no declared volume group is made or enlarged: %v", err)})
	}
	for _, g := range report.Failed() {
		failed = append(failed, lvm.Finding{Trouble: lvm.TroubleUnprepared, Group: g.Name, Text: fmt.Sprintf("volume group %s is not as it is declared: %v", g.Name, g.Err)})
	}
	text := report.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = failed
	if text != c.told {
		c.told = text
		for line := range strings.Lines(text) {
			c.log.InfoContext(ctx, "looked for disks: "+strings.TrimSpace(line))
		}
	}
}

// Health tells which groups are not as they are declared.
func (c *caretaker) Health(context.Context) ([]lvm.Finding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed, nil
}
