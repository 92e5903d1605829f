package health

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/report"
)

// TestInventory: the inventory has what only the kernel, the locks and the tags show, and takes no LVM command.
func TestInventory(t *testing.T) {
	node, b, d := hosttest.Started(t)
	want := b.Spec("thin", 16*lvm.MiB)
	want.Class = lvm.Class{Group: b.Group, Layout: lvm.LayoutThin}
	thin := d.MustCreate(t, want)
	sn, err := d.CreateSnapshot(t.Context(), lvm.SnapshotSpec{Name: "backup", Source: thin.ID})
	hosttest.Must(t, err)
	d = b.Start(t) // no volume waits for its ready tag
	read := func() (inv report.Inventory) {
		t.Helper()
		d.Counted(t, "Inventory", 0, func() {
			var err error
			inv, err = d.Inventory(t.Context())
			hosttest.Must(t, err)
		})
		return inv
	}
	inv := read()
	if len(inv.Volumes) != 1 || inv.Volumes[0].ID != thin.ID.String() || inv.Volumes[0].UUID != thin.UUID || inv.Volumes[0].Cluster != hosttest.Cluster {
		t.Errorf("volumes %+v", inv.Volumes)
	}
	if len(inv.Snapshots) != 1 || inv.Snapshots[0].ID != sn.ID.String() || inv.Snapshots[0].Source != thin.ID.String() || inv.Snapshots[0].Name != "backup" {
		t.Errorf("snapshots %+v", inv.Snapshots)
	}
	path := d.MustDevice(t, thin)
	node.SetStatus(path, "thin", "2048 4095")
	if used := read().Volumes[0].Used; used == nil || *used != lvm.MiB {
		t.Errorf("used %v", used)
	}
	pool := poolPath(t, node)
	for status, state := range map[string]report.PoolState{
		"1 10/1000 1/2000 - rw discard_passdown error_if_no_space - 128":                   report.PoolWorks,
		"1 10/1000 2000/2000 - out_of_data_space discard_passdown error_if_no_space - 128": report.PoolFull,
		"1 1000/1000 1/2000 - rw discard_passdown error_if_no_space - 128":                 report.PoolFull,
		"1 10/1000 1/2000 - ro discard_passdown error_if_no_space needs_check 128":         report.PoolFailed,
		"Fail": report.PoolFailed,
		"":     report.PoolInactive,
	} {
		node.SetStatus(pool, "thin-pool", status)
		groups := read().Groups
		i := slices.IndexFunc(groups, func(g report.Group) bool { return string(g.Name) == b.Group })
		if got := groups[i].Pools[0].State; got != state {
			t.Errorf("%q: the pool is %s, want %s", status, got, state)
		}
	}
	raw := b.Spec("raw", 16*lvm.MiB)
	raw.Block, raw.Class.Encryption = true, lvm.EncryptionLUKS2
	v := d.MustCreate(t, raw)
	_, err = d.SetLimits(t.Context(), v.ID, v.UUID, lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}})
	hosttest.Must(t, err)
	inv = read()
	checkFilled(t, inv.Groups, "Problem", "AutoActivation", "LockHeldSeconds", "BlockedSeconds") // TestNodeTag, TestNodeTag_RealLVM, TestInventoryLock, TestHungCommandBlocksOneVG
	checkFilled(t, inv.Volumes, "Class", "FileSystem", "IO")                                     // cmd/nodelvm adds them
	checkFilled(t, inv.Snapshots)
	node.Change(b.Group, func(g *lvm.Group) { g.LVs[len(g.LVs)-1].Tags = []string{"nodelvm.v=1", "nodelvm.v=1"} })
	if got := read().Damaged; len(got) != 1 || !strings.Contains(got[0], "two nodelvm.v tags") {
		t.Errorf("damaged: %q", got)
	}
}

// checkFilled reports the fields that no entry fills, except those of other tests.
func checkFilled[E any](t *testing.T, entries []E, others ...string) {
	t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[E]()) {
		filled := slices.ContainsFunc(entries, func(e E) bool { return !reflect.ValueOf(e).FieldByIndex(field.Index).IsZero() })
		if !filled && !slices.Contains(others, field.Name) {
			t.Errorf("no %T has a value in %s", *new(E), field.Name)
		}
	}
}

// The inventory shows a lock that another lvm holds, as long as it is held.
func TestInventoryLock(t *testing.T) {
	dir := t.TempDir()
	host := lvmtest.NewNode(lvmtest.Group{Name: "vg", Disks: []lvm.Bytes{lvm.GiB}}).Start(t, lvm.Config{LockDir: dir})
	file, err := os.OpenFile(filepath.Join(dir, "V_vg"), os.O_CREATE|os.O_RDWR, 0o600)
	hosttest.Must(t, err)
	defer func() { _ = file.Close() }()
	held := func() int64 {
		inv, err := host.Inventory(t.Context())
		hosttest.Must(t, err)
		return inv.Groups[0].LockHeldSeconds
	}
	hosttest.Must(t, unix.Flock(int(file.Fd()), unix.LOCK_EX))
	if got := held(); got < 1 || got > int64(time.Minute.Seconds()) {
		t.Errorf("held for %d s", got)
	}
	hosttest.Must(t, unix.Flock(int(file.Fd()), unix.LOCK_UN))
	if got := held(); got != 0 {
		t.Errorf("released, but held for %d s", got)
	}
}
