//go:build reallvm

package thinpool

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/reallvm"
)

// TestPoolRemovalAfterChange_RealLVM: the command that removes an empty pool does nothing if the group has changed since the driver
// read it, and so does not remove what an admin has created in the pool.
func TestPoolRemovalAfterChange_RealLVM(t *testing.T) {
	b := reallvm.NewFixture(t).OneAtATime()
	d := b.Start(t)
	empty := func() string {
		hosttest.Must(t, d.Delete(t.Context(), d.MustCreate(t, b.Thin("v", 8*lvm.MiB, lvm.ID{})).ID))
		return hosttest.FindLV(t, b.ReadGroup(t), lvm.DefaultPool).UUID
	}
	old := empty()
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	i := slices.IndexFunc(d.Commands(), func(c lvm.Command) bool {
		return c.Name == "lvremove" && strings.Contains(strings.Join(c.Args, " "), old)
	})
	if i < 0 {
		t.Fatalf("no command of %v removes the pool %s", d.Commands(), old)
	}
	removal := slices.Clone(d.Commands()[i].Args)
	at := slices.Index(removal, "-S") + 1
	removal[at] = strings.ReplaceAll(removal[at], old, empty())
	removal[at] = regexp.MustCompile(`vg_seqno=[0-9]+`).ReplaceAllString(removal[at], "vg_seqno="+strings.TrimSpace(reallvm.Admin(t, "vgs", "--noheadings", "-o", "vg_seqno", reallvm.Group)))
	reallvm.Admin(t, "lvcreate", "-y", "--type", "thin", "-V", "4m", "--thinpool", lvm.DefaultPool, "-n", "theirs", reallvm.Group)
	before := b.ReadGroup(t)
	reallvm.Admin(t, append([]string{"lvremove"}, removal...)...)
	if after := b.ReadGroup(t); after.Seqno != before.Seqno || len(after.LVs) != len(before.LVs) {
		t.Errorf("the group changed from %+v to %+v", before, after)
	}
	reallvm.Admin(t, "lvremove", "-y", reallvm.Group+"/theirs")
	hosttest.Must(t, d.ExtendThinPools(t.Context()))
	if lvs := b.ReadGroup(t).LVs; len(lvs) > 0 {
		t.Errorf("the group has %+v", lvs)
	}
}
