package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/kube"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/host"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/node/trim"
)

// poolCheckInterval is the interval of the checks of thin pools. A check asks the kernel, and starts no process.
const poolCheckInterval = 10 * time.Second

// maintenance is the loop that keeps the node's groups and pools as declared. It adds new disks, extends thin pools that fill
// up, and removes empty ones.
type maintenance struct {
	host  *host.Host
	file  string        // of the declarations; "": none
	every time.Duration // interval of device scans; 0: one scan, at the start
	log   *slog.Logger

	mu      sync.Mutex
	failed  []lvm.Condition
	refused map[lvm.VGName]bool // groups that differ from their declaration because the driver refuses changes
	logged  string
}

// start runs the loop in the background until ctx ends. A command that runs then is completed.
func (c *maintenance) start(ctx context.Context, parts *errgroup.Group) {
	for _, work := range []func(context.Context){c.watchDisks, c.watchPools} {
		parts.Go(func() error {
			work(ctx)
			return nil
		})
	}
}

// watchDisks creates and extends the declared groups at the start, and then at each device scan, until ctx ends.
func (c *maintenance) watchDisks(ctx context.Context) {
	if c.file == "" {
		return
	}
	c.prepare(ctx)
	if c.every > 0 {
		repeat(ctx, c.every, c.prepare)
	}
}

// watchPools extends and removes pools until ctx ends.
func (c *maintenance) watchPools(ctx context.Context) {
	failing := ""
	repeat(ctx, poolCheckInterval, func(ctx context.Context) { failing = c.extendPools(ctx, failing) })
}

// extendPools checks the pools once. It logs a repeated error, as while a disk is missing, only once: failing is the last
// error.
func (c *maintenance) extendPools(ctx context.Context, failing string) string {
	err := c.host.ExtendThinPools(ctx)
	if err == nil || ctx.Err() != nil {
		return ""
	}
	if err.Error() != failing {
		c.log.WarnContext(ctx, "cannot extend a thin pool, or remove an empty one; retrying every "+poolCheckInterval.String(), "error", err)
	}
	return err.Error()
}

func repeat(ctx context.Context, every time.Duration, do func(context.Context)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			do(ctx)
		}
	}
}

// prepare scans for new disks. One that appears while the driver runs may be another driver's volume, which is blank until its
// pod uses it: with repeated scans, prepare adds a disk only at the second scan that finds it blank. It logs each changed
// report.
func (c *maintenance) prepare(ctx context.Context) {
	var report lvm.PrepareReport
	declared, err := readDeclarations(c.file)
	if err == nil {
		report, err = c.host.Prepare(ctx, lvm.Preparation{Declared: declared, RequireStableScan: c.every > 0, Signatures: filesystem.ListSignatures})
	}
	if ctx.Err() != nil {
		return
	}
	var failed []lvm.Condition
	if err != nil {
		failed = append(failed, lvm.Condition{Type: lvm.ConditionVolumeGroupSetupFailed, Text: fmt.Sprintf("cannot create or extend the declared volume groups: %v", err)})
	}
	refused := map[lvm.VGName]bool{}
	for _, g := range report.Failed() {
		refusal := c.host.Refusal(ctx, g.Name)
		refused[g.Name] = refusal != nil && strings.Contains(g.Err.Error(), refusal.Error())
		failed = append(failed, lvm.Condition{Type: lvm.ConditionVolumeGroupSetupFailed, Group: g.Name, Text: fmt.Sprintf("volume group %s differs from its declaration: %v", g.Name, g.Err)})
	}
	text := report.String()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.refused = failed, refused
	if text != c.logged {
		c.logged = text
		for line := range strings.Lines(text) {
			c.log.InfoContext(ctx, "device scan: "+strings.TrimSpace(line))
		}
	}
}

// Health returns the groups that differed from their declaration at the last scan. The next scan may be minutes away, so it
// omits a group that the driver refused to change, for example because of a missing disk, once the driver can change it.
func (c *maintenance) Health(ctx context.Context) ([]lvm.Condition, error) {
	c.mu.Lock()
	failed, refused := c.failed, c.refused
	c.mu.Unlock()
	var still []lvm.Condition
	for _, f := range failed {
		if !refused[f.Group] || c.host.Refusal(ctx, f.Group) != nil {
			still = append(still, f)
		}
	}
	return still, nil
}

// startTrim trims the file systems that opt in until ctx ends; without an agent it cannot read their annotations.
func startTrim(ctx context.Context, parts *errgroup.Group, node trim.Node, agent *kube.Agent, observe func(lvm.Bytes, time.Duration, error), log *slog.Logger) {
	if agent == nil {
		return
	}
	trimmer := trim.New(trim.Config{Node: node, Interval: agent.TrimInterval, Failed: agent.ReportTrimFailed, Done: observe, Log: log})
	parts.Go(func() error {
		trimmer.Run(ctx)
		return nil
	})
}

// newTrimMetrics returns an observer of trims.
func newTrimMetrics(registry prometheus.Registerer) func(lvm.Bytes, time.Duration, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "nodelvm_trim_duration_seconds", Help: "Duration of trims of file systems, by result: success or failure.", Buckets: []float64{.1, 1, 10, 60, 300, 900, 1800},
	}, []string{"result"})
	bytes := prometheus.NewCounter(prometheus.CounterOpts{Name: "nodelvm_trimmed_bytes_total", Help: "Bytes that the file systems have discarded in trims."})
	registry.MustRegister(seconds, bytes)
	for _, result := range []string{"success", "failure"} {
		seconds.WithLabelValues(result)
	}
	return func(trimmed lvm.Bytes, took time.Duration, err error) {
		result := "success"
		if err != nil {
			result = "failure"
		}
		seconds.WithLabelValues(result).Observe(took.Seconds())
		bytes.Add(float64(trimmed))
	}
}
