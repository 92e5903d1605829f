package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
)

// TestLimitsAreApplied: after a change of the limits, and after an expansion of a volume whose limits follow its size, the node applies them;
// what it cannot do makes the change infeasible, and keeps no volume small.
func TestLimitsAreApplied(t *testing.T) {
	host := lvmtest.NewHost(t, lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{10 * lvm.GiB}})
	v, err := host.Create(t.Context(), lvm.Spec{Name: "pvc-1", Required: lvm.GiB, Class: lvm.Class{Group: "vg"}})
	must(t, err)
	var applied []lvm.Rates
	var noted []lvm.Volume
	var fails, cannot error
	volumes := limitedVolumes{host, func() error { return cannot }, func(ctx context.Context, id lvm.ID) error {
		now, err := host.Lookup(ctx, id)
		applied = append(applied, now.Rates())
		return errors.Join(err, fails)
	}, func() func(lvm.Volume) {
		return func(v lvm.Volume) { noted = append(noted, v) }
	}, slog.New(slog.DiscardHandler)}
	expect := func(what string, err error, kind lvm.Kind, want ...lvm.Rates) {
		t.Helper()
		if (err == nil) != (kind == 0) || err != nil && lvm.KindOf(err) != kind {
			t.Errorf("%s: %v", what, err)
		}
		if len(applied) != len(want) || len(want) > 0 && applied[0] != want[0] {
			t.Errorf("%s: applied %+v, want %+v", what, applied, want)
		}
		applied = nil
	}
	_, err = volumes.Extend(t.Context(), v.ID, 2*lvm.GiB, 0)
	expect("an expansion without limits", err, 0)
	_, err = volumes.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}})
	expect("a fixed limit", err, 0, lvm.Rates{ReadIOPS: 100})
	_, err = volumes.ExtendBlock(t.Context(), v.ID, 3*lvm.GiB, 0)
	expect("an expansion with a fixed limit", err, 0)
	_, err = volumes.SetLimits(t.Context(), v.ID, "", lvm.Limits{PerGiB: lvm.Rates{WriteIOPS: 10}})
	expect("a limit for each GiB", err, 0, lvm.Rates{WriteIOPS: 30})
	_, err = volumes.ExtendBlock(t.Context(), v.ID, 4*lvm.GiB, 0)
	expect("an expansion", err, 0, lvm.Rates{WriteIOPS: 40})
	fails = lvm.Errorf(lvm.KindConflict, "no controller io")
	_, err = volumes.Extend(t.Context(), v.ID, 5*lvm.GiB, 0)
	expect("an expansion on a node without limits", err, 0, lvm.Rates{WriteIOPS: 50})
	_, err = volumes.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}})
	expect("a limit on a node without limits", err, lvm.KindInvalid, lvm.Rates{ReadIOPS: 100})
	cannot = fails
	_, err = volumes.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 200}})
	expect("a limit on a node that is known to have none", err, lvm.KindInvalid)
	if now, err := host.Lookup(t.Context(), v.ID); err != nil || now.Limits.Fixed.ReadIOPS != 100 {
		t.Errorf("an infeasible change is recorded: %+v, %v", now.Limits, err)
	}
	fails = lvm.Errorf(lvm.KindBusy, "retry")
	_, err = volumes.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{})
	expect("a busy volume", err, lvm.KindBusy, lvm.Rates{})
	_, err = volumes.SetLimits(t.Context(), lvm.ID{VG: v.ID.VG, LV: "none"}, "", lvm.Limits{})
	expect("no volume", err, lvm.KindNotFound)
	limits := lvm.Limits{PerGiB: lvm.Rates{ReadIOPS: 50}}
	made, err := volumes.CreateWithPeers(t.Context(), lvm.Spec{Name: "pvc-2", Required: lvm.GiB, Class: lvm.Class{Group: "vg"}, Limits: limits}, nil)
	must(t, err)
	_, err = volumes.CreateWithPeers(t.Context(), lvm.Spec{Name: "pvc-3", Required: lvm.TiB, Class: lvm.Class{Group: "vg"}, Limits: limits}, nil)
	expect("no capacity", err, lvm.KindInsufficientCapacity)
	if len(noted) != 1 || noted[0].UUID != made.UUID || noted[0].ID != made.ID || made.UUID == "" || noted[0].Rates() != (lvm.Rates{ReadIOPS: 50}) {
		t.Errorf("of a new volume it is remembered %+v", noted)
	}
}

// TestLimitsAreChecked: the driver checks all limits at its start and every 30 seconds, as docs/howto/io-limits.md says, and repeats no warning.
func TestLimitsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var checks []time.Duration
		var log strings.Builder
		d := &driver{o: &options{ioLimits: "/sys/fs/cgroup"}, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		parts, ctx := errgroup.WithContext(ctx)
		d.checkLimits(ctx, parts, func(context.Context) error {
			checks = append(checks, time.Since(begin))
			return []error{errors.New("no controller io"), errors.New("no controller io"), nil, errors.New("no controller io")}[len(checks)-1]
		})
		time.Sleep(95 * time.Second)
		stop()
		must(t, parts.Wait())
		if want := []time.Duration{0, 30 * time.Second, time.Minute, 90 * time.Second}; !slices.Equal(checks, want) {
			t.Errorf("checks after %v, want %v", checks, want)
		}
		if n := strings.Count(log.String(), "no controller io"); n != 2 {
			t.Errorf("%d warnings:\n%s", n, log.String())
		}
		(&driver{o: &options{}}).checkLimits(t.Context(), nil, nil) // without limits there is nothing to check
	})
}
