package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// Config configures Measure.
type Config struct {
	Image  string    // docker-archive of the driver's image
	Rounds int       // samples of each figure
	Parts  []string  // of Parts; nil means all
	Out    io.Writer // the samples
	Say    io.Writer // progress
}

// Parts are the parts of a run.
const (
	PartThick = "thick" // one request at a time, linear volumes
	PartThin  = "thin"  // thin volumes and snapshots
	PartBurst = "burst" // many requests at once

	PartPublish = "publish" // NodePublishVolume with I/O limits
)

// fillings are the numbers of volumes in the group.
var fillings = []int{0, 100, 1000}

// Measure takes all samples. It overwrites the node's blank disks, so call it only in a lab node without other use.
func Measure(ctx context.Context, cfg Config) error {
	scratch, err := os.MkdirTemp("/var/lib", "bench-")
	if err != nil {
		return err
	}
	n := &node{scratch: scratch, root: filepath.Join(scratch, "root"), say: func(format string, args ...any) {
		_, _ = fmt.Fprintf(cfg.Say, format+"\n", args...)
	}}
	if err := n.unpack(ctx, cfg.Image); err != nil {
		return err
	}
	if err := n.facts(ctx, cfg.Out); err != nil {
		return err
	}
	if cfg.has(PartThick) || cfg.has(PartThin) || cfg.has(PartBurst) {
		for _, volumes := range fillings {
			if err := n.stage(ctx, cfg, volumes); err != nil {
				return fmt.Errorf("with %d volumes in the group: %w", volumes, err)
			}
		}
	}
	if cfg.has(PartPublish) {
		return n.publishes(ctx, cfg)
	}
	return nil
}

func (c Config) has(part string) bool { return c.Parts == nil || slices.Contains(c.Parts, part) }

// serving runs do with a driver.
func (n *node) serving(ctx context.Context, flags []string, do func(*driver) error) (err error) {
	d, err := n.startDriver(ctx, flags...)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nthe end of the driver's log:\n%s", err, d.logged())
		}
		err = errors.Join(err, d.stop())
	}()
	return do(d)
}

// stage measures with a number of volumes in the group, with a new group and a new driver process.
func (n *node) stage(ctx context.Context, cfg Config, volumes int) error {
	n.say("a group with %d volumes", volumes)
	if err := n.newGroup(ctx); err != nil {
		return err
	}
	return n.serving(ctx, nil, func(d *driver) error { return n.measure(ctx, cfg, d, volumes) })
}

func (n *node) measure(ctx context.Context, cfg Config, d *driver, volumes int) error {
	if volumes > 0 {
		if err := d.create(ctx, thickClass, fillerName(0), 4*mebibyte); err != nil {
			return err
		}
		if _, err := d.settled(ctx); err != nil {
			return err
		}
		if err := n.fill(ctx, volumes); err != nil {
			return err
		}
	}
	m := &meter{node: n, driver: d, volumes: volumes, out: cfg.Out}
	if cfg.has(PartThick) {
		if err := m.warmRounds(ctx, "linear volumes", cfg.Rounds, m.thickRound); err != nil {
			return err
		}
	}
	if cfg.has(PartThin) {
		if err := m.thin(ctx, cfg.Rounds); err != nil {
			return err
		}
	}
	if cfg.has(PartBurst) && volumes == 0 {
		if err := m.bursts(ctx, (cfg.Rounds+1)/2); err != nil {
			return err
		}
	}
	return m.memory()
}

// memory takes a sample of the driver's memory after all its work.
func (m *meter) memory() error {
	bytes, err := m.driver.resident()
	if err != nil {
		return err
	}
	return m.note("Memory", 1, Nodelvm, map[string]float64{unitMemory: bytes})
}
