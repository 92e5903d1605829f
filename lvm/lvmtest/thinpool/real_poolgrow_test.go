//go:build reallvm

package thinpool

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/node/filesystem"
	"github.com/nodelvm/nodelvm/report"
)

// poolGroup is the group of the thin pool that grows.
const poolGroup = "nodelvm-growing"

// TestExtendThinPools_RealLVM: the driver extends an overprovisioned pool as it fills. When the group is full, it creates nothing
// more in the pool and says why; with free extents again it continues.
func TestExtendThinPools_RealLVM(t *testing.T) {
	dir := t.TempDir()
	d := reallvm.StartDriver(t, dir)
	t.Cleanup(func() { d.Stop(t) })
	declared := lvm.Declaration{Name: poolGroup, Devices: []lvm.Selector{{Paths: []string{reallvm.LoopDisk(t, "growing", 128)}}},
		Pool: lvm.PoolPolicy{Size: 24 * lvm.MiB, MetadataAutoextendThreshold: 1}}
	prepare := func() lvm.PrepareReport {
		t.Helper()
		report, err := d.Prepare(t.Context(), lvm.Preparation{Declared: []lvm.Declaration{declared}, Signatures: filesystem.ListSignatures})
		hosttest.Must(t, err)
		return report
	}
	if report := prepare(); !strings.Contains(report.Groups[0].Text, "its thin pool nodelvm-thin has 24 MiB now") {
		t.Fatal(report)
	}
	t.Cleanup(func() { reallvm.Admin(t, "vgremove", "-ff", "-y", poolGroup) })
	pool := func() report.Pool {
		for _, g := range hosttest.Report(d.Host).Groups {
			if g.Name == poolGroup {
				return g.Pools[0]
			}
		}
		t.Fatal("no pool")
		return report.Pool{}
	}
	spec := func(name string, size lvm.Bytes) lvm.Spec {
		class := lvm.Class{Group: poolGroup, Layout: lvm.LayoutThin, Overprovision: 200}
		return lvm.Spec{Name: name, Class: class, Required: size}
	}
	first := d.MustCreate(t, spec("first", 40*lvm.MiB))
	if p := pool(); p.Size != 24*lvm.MiB || p.Provisioned != 40*lvm.MiB || p.MetadataSize != 4*lvm.MiB {
		t.Errorf("at first %+v", p)
	}
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	if p := pool(); p.MetadataSize != 8*lvm.MiB || p.Extensions != 1 {
		t.Errorf("with metadata above its threshold: %+v", p)
	}
	declared.Pool.MetadataAutoextendThreshold = 0
	d.Counted(t, "a check of pools that need nothing", 0, func() {
		prepare()
		hosttest.Must(t, d.ExtendThinPools(t.Context()))
	})
	writeTo(t, d, first, 20*lvm.MiB)
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	if p := pool(); p.Size != 40*lvm.MiB || p.Used < 20*lvm.MiB || p.Used >= 21*lvm.MiB /* the format mark takes a chunk */ || p.Extensions != 2 {
		t.Errorf("with 20 of 24 MiB written: %+v", p)
	}
	second := d.MustCreate(t, spec("second", 120*lvm.MiB))
	writeTo(t, d, second, 70*lvm.MiB)
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	p := pool()
	t.Logf("the pool has the whole group: %+v", p)
	if c := d.MustCapacity(t, first.Class); c != (lvm.Capacity{}) {
		t.Errorf("the pool and its group are nearly full, and its capacity is %+v", c)
	}
	_, err := d.Create(t.Context(), spec("third", 4*lvm.MiB))
	if hosttest.WantKind(t, "a volume more", err, lvm.KindInsufficientCapacity); err != nil && !strings.Contains(err.Error(), "is nearly full") {
		t.Errorf("the refusal is %v", err)
	}
	findings := d.Conditions(t)
	if len(findings) != 1 || findings[0].Type != lvm.ConditionThinPoolNearlyFull || !strings.Contains(findings[0].Text, "the driver creates no volume or snapshot") {
		t.Errorf("findings %+v", findings)
	}
	d.MustRemove(t, second)
	third := d.MustCreate(t, spec("third", 4*lvm.MiB))
	for _, v := range []lvm.Volume{first, third} {
		hosttest.Must(t, d.Delete(t.Context(), v.ID))
	}
	d.WaitWiped(t)
}

// writeTo writes to the beginning of a volume.
func writeTo(t testing.TB, d *hosttest.Driver, v lvm.Volume, size lvm.Bytes) {
	t.Helper()
	path := d.MustActivate(t, v)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	hosttest.Must(t, err)
	data := bytes.Repeat([]byte("nodelvm "), 1<<17)
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		_, err = f.Write(data)
		hosttest.Must(t, err)
	}
	hosttest.Must(t, f.Sync())
	hosttest.Must(t, f.Close())
}
