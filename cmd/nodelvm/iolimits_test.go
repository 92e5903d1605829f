package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

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
	var fails, cannot error
	volumes := limitedVolumes{host, func() error { return cannot }, func(ctx context.Context, id lvm.ID) error {
		now, err := host.Lookup(ctx, id)
		applied = append(applied, now.Rates())
		return errors.Join(err, fails)
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
}
