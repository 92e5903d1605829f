//go:build reallvm

package dataleak

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// secrets counts the MiB of a device that hold what fill wrote. It ignores RAID's metadata.
func secrets(t testing.TB, device string) int {
	t.Helper()
	f, err := os.Open(device)
	hosttest.Must(t, err)
	defer func() { hosttest.Must(t, f.Close()) }()
	block, found := make([]byte, lvm.MiB), 0
	for {
		n, err := io.ReadFull(f, block)
		if err == io.EOF {
			return found
		}
		hosttest.Must(t, err)
		if bytes.Contains(block[:n], []byte("a tenant's secret")) {
			found++
		}
	}
}

// TestDataLeak_RealLVM: no later volume that gets all free extents shows data of a deleted volume, whatever the layout of that
// volume, even if it had been extended, and even if its wipe was interrupted.
func TestDataLeak_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	for _, s := range append(hosttest.Shapes, hosttest.Shape{Class: lvm.Class{Layout: lvm.LayoutLinear}, Legs: 1, Data: 1}) {
		t.Run(s.String(), func(t *testing.T) {
			d := b.Start(t)
			class := b.In(s.Class)
			v := d.MustCreate(t, lvm.Spec{Name: "secret", Class: class, Required: 4 * s.Row()})
			reallvm.FillVolume(t, d, v)
			v = d.MustExtend(t, v, v.Size+s.Row())
			reallvm.FillVolume(t, d, v)
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
			d = b.Start(t) // it resumes the wipe
			d.WaitWiped(t)
			curious := d.MustCreate(t, b.Light("curious", d.MustCapacity(t, b.Class()).Largest))
			device := d.MustActivate(t, curious)
			if n := secrets(t, device); n > 0 {
				t.Errorf("%d MiB of the deleted volume can be read", n)
			}
			d.MustRemove(t, curious)
		})
	}
}

// TestThinDataLeak_RealLVM: nor does a later volume of the same pool.
func TestThinDataLeak_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	v := d.MustCreate(t, b.Thin("secret", 32*lvm.MiB, lvm.ID{}))
	reallvm.FillVolume(t, d, v)
	v = d.MustExtend(t, v, v.Size+lvmtest.ExtentSize)
	reallvm.FillVolume(t, d, v)
	hosttest.Must(t, d.Delete(t.Context(), v.ID))
	curious := d.MustCreate(t, b.Thin("curious", 40*lvm.MiB, lvm.ID{}))
	device := d.MustActivate(t, curious)
	f, err := os.OpenFile(device, os.O_WRONLY, 0)
	hosttest.Must(t, err)
	for at := int64(0); at < int64(curious.Size); at += 64 << 10 { // the pool allocates a block for each
		_, err := f.WriteAt(make([]byte, 4096), at)
		hosttest.Must(t, err)
	}
	hosttest.Must(t, f.Sync())
	hosttest.Must(t, f.Close())
	if n := secrets(t, device); n > 0 {
		t.Errorf("%d MiB of the deleted volume can be read", n)
	}
	b.DeleteAll(t, d)
	b.RemovePool(t)
}

// TestNewVolumeHasNoSignature_RealLVM: a new volume shows no signature that was on its extents before.
func TestNewVolumeHasNoSignature_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	spec := b.Spec("signed", 128*lvm.MiB)
	spec.Class.Wipe = lvm.WipeNone
	for _, mkfs := range []string{"mkfs.ext4", "mkfs.btrfs", "mkswap", "true"} { // true: only check what mkswap left
		v := d.MustCreate(t, spec)
		device := d.MustDevice(t, v)
		if out, err := exec.CommandContext(t.Context(), "wipefs", "--noheadings", device).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("a new volume has a signature (%v): %s", err, out)
		}
		if out, err := exec.CommandContext(t.Context(), mkfs, device).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", mkfs, err, out)
		}
		d.MustRemove(t, v)
	}
}
