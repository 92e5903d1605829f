package conformance

import (
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
)

// testLimits: one command changes the limits of a volume, none if it has them, and they outlast the driver and follow the size.
func testLimits(t *testing.T, b hosttest.Fixture) {
	d := b.Start(t)
	v := d.MustCreate(t, b.Spec("limited", 8*lvm.MiB))
	some := lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100, WriteIOPS: 50}, PerGiB: lvm.Rates{WriteBandwidth: 100 * lvm.GiB}}
	other := lvm.Limits{Fixed: lvm.Rates{ReadBandwidth: lvm.MiB}}
	for i, step := range []struct {
		limits    lvm.Limits
		processes int
	}{{lvm.Limits{}, 0}, {some, 1}, {some, 0}, {other, 1}, {some, 1}} {
		want := v
		want.Limits = step.limits
		d.Counted(t, "set limits", step.processes, func() {
			if got, err := d.SetLimits(t.Context(), v.ID, v.UUID, step.limits); err != nil || got != want {
				t.Errorf("step %d: %+v, want %+v; %v", i, got, want, err)
			}
		})
	}
	hosttest.Refused(t, "another volume's UUID", lvm.KindNotFound)(d.SetLimits(t.Context(), v.ID, "HQoAYp-RU1R-Ue5q-RgtC-5e3j-B9m2-2RmZ40", other))
	d.Stop(t)
	d = b.Start(t)
	if now, err := d.Extend(t.Context(), v.ID, 16*lvm.MiB, 0); err != nil || now.Limits != some || now.Rates().WriteBandwidth != 1600*lvm.MiB {
		t.Errorf("extended: %+v, %v", now, err)
	}
	if now, err := d.SetLimits(t.Context(), v.ID, "", lvm.Limits{}); err != nil || now.Limits != (lvm.Limits{}) {
		t.Errorf("without limits: %+v, %v", now, err)
	}
}
