//go:build reallvm

package thinpool

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
	"github.com/nodelvm/nodelvm/report"
)

// TestRealTransactionMismatch: after a restore of old metadata, LVM and the active pool are at different transactions: the condition names the
// pool and both numbers, until the newer metadata is restored as it says. Meanwhile LVM creates
// no volume, and the driver removes none; LVM activates the others.
func TestRealTransactionMismatch(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	used, unused := d.MustCreate(t, b.Thin("used", 16*lvm.MiB, lvm.ID{})), d.MustCreate(t, b.Thin("unused", 16*lvm.MiB, lvm.ID{}))
	snapshot := d.MustSnapshot(t, "s", unused.ID)
	d = b.Start(t) // no volume waits for its ready tag
	d.MustActivate(t, used)
	b.Admin(t, "lvchange", "-y", "-an", b.Group+"/"+unused.ID.LV)
	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	b.Admin(t, "vgcfgbackup", "-f", before, b.Group)
	d.MustCreate(t, b.Thin("second", 16*lvm.MiB, lvm.ID{}))
	d = b.Start(t) // no volume waits for its ready tag
	b.Admin(t, "vgcfgbackup", "-f", after, b.Group)
	pool := func() report.Pool {
		t.Helper()
		for _, g := range hosttest.Report(d.Host).Groups {
			if string(g.Name) == b.Group {
				return g.Pools[0]
			}
		}
		t.Fatal("no group")
		return report.Pool{}
	}
	same := pool()
	if same.KernelTransactionID == nil || *same.KernelTransactionID != same.TransactionID || len(d.Conditions(t)) > 0 {
		t.Fatalf("before: %+v, %+v", same, d.Conditions(t))
	}

	b.Admin(t, "vgcfgrestore", "-y", "--force", "-f", before, b.Group)
	old := pool()
	if old.TransactionID >= same.TransactionID || old.KernelTransactionID == nil || *old.KernelTransactionID != same.TransactionID {
		t.Fatalf("after the restore: %+v, before it %+v", old, same)
	}
	found := d.Conditions(t)
	i := slices.IndexFunc(found, func(c lvm.Condition) bool { return c.Type == lvm.ConditionThinPoolTransactionMismatch })
	words := fmt.Sprintf("transaction_id = %d for thin pool %s/%s, and the pool itself has %d: the metadata is older", old.TransactionID, b.Group, lvm.DefaultPool, same.TransactionID)
	if i < 0 || found[i].Pool != lvm.DefaultPool || !strings.Contains(found[i].Text, words) {
		t.Errorf("found %+v, want %q", found, words)
	}
	b.Admin(t, "lvchange", "-ay", b.Group+"/"+lvm.DefaultPool) // LVM then compares the transactions only after its commit
	hosttest.Refused(t, "create", lvm.KindInsufficientCapacity)(d.Create(t.Context(), b.Thin("third", 16*lvm.MiB, lvm.ID{})))
	hosttest.Refused(t, "group snapshot", lvm.KindInsufficientCapacity)(d.CreateGroupSnapshot(t.Context(), lvm.GroupSnapshotSpec{Name: "g", Sources: []lvm.ID{used.ID}},
		func(context.Context, lvm.ID) (func(), error) { return func() {}, nil }))
	b.Admin(t, "lvchange", "-an", b.Group+"/"+lvm.DefaultPool)
	d.MustActivate(t, unused)
	if err := d.DeleteSnapshot(t.Context(), snapshot.ID); lvm.KindOf(err) != lvm.KindBusy {
		t.Errorf("the snapshot is deleted: %v", err)
	}
	if now := pool(); now.TransactionID != old.TransactionID || *now.KernelTransactionID != *old.KernelTransactionID {
		t.Errorf("after refusals: %+v (%d), before it %+v (%d)", now, *now.KernelTransactionID, old, *old.KernelTransactionID)
	}

	b.Admin(t, "vgcfgrestore", "-y", "--force", "-f", after, b.Group)
	if found := d.Conditions(t); len(found) > 0 {
		t.Errorf("after the second restore: %+v", found)
	}
	d.MustCreate(t, b.Thin("fourth", 16*lvm.MiB, lvm.ID{}))
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in %v", lost)
	}
	b.DeleteAll(t, d)
}

// TestRealEmptyPoolOfAnotherState: after a restore of metadata from before a pool's volumes, the driver removes no pool that seems to be empty, and
// the volumes are there again with the later metadata.
func TestRealEmptyPoolOfAnotherState(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	hosttest.Must(t, d.Delete(t.Context(), d.MustCreate(t, b.Thin("former", 16*lvm.MiB, lvm.ID{})).ID))
	before, after := filepath.Join(t.TempDir(), "before"), filepath.Join(t.TempDir(), "after")
	b.Admin(t, "vgcfgbackup", "-f", before, b.Group)
	d.MustCreate(t, b.Thin("v", 16*lvm.MiB, lvm.ID{}))
	d = b.Start(t) // no volume waits for its ready tag
	b.Admin(t, "vgcfgbackup", "-f", after, b.Group)
	b.Admin(t, "vgchange", "-y", "-an", b.Group)
	b.Admin(t, "vgcfgrestore", "-y", "--force", "-f", before, b.Group)
	if err := d.ExtendThinPools(t.Context()); lvm.KindOf(err) != lvm.KindBusy || !strings.Contains(err.Error(), "transaction_id") {
		t.Errorf("the driver checked the pool: %v", err)
	}
	hosttest.FindLV(t, b.ReadGroup(t), lvm.DefaultPool)
	b.Admin(t, "vgcfgrestore", "-y", "--force", "-f", after, b.Group)
	d.MustActivate(t, d.Volumes(t)[0])
	if lost := b.Lost(t); len(lost) > 0 {
		t.Errorf("the pool and LVM differ in %v", lost)
	}
	b.DeleteAll(t, d)
}
