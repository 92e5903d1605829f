//go:build reallvm

package lvmtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestPoolRemovalAfterChange_RealLVM: the command that removes an empty pool does nothing if the group has changed since the driver
// read it, and so does not remove what an admin has created in the pool.
func TestPoolRemovalAfterChange_RealLVM(t *testing.T) {
	b := realFixture(t).oneAtATime()
	d := b.Start(t)
	empty := func() string {
		must(t, d.Delete(t.Context(), d.create(t, b.thin("v", 8*lvm.MiB, lvm.ID{})).ID))
		return find(t, b.group(t), lvm.DefaultPool).UUID
	}
	old := empty()
	must(t, d.ExtendThinPools(t.Context()))
	i := slices.IndexFunc(d.commands, func(c lvm.Command) bool {
		return c.Name == "lvremove" && strings.Contains(strings.Join(c.Args, " "), old)
	})
	if i < 0 {
		t.Fatalf("no command of %v removes the pool %s", d.commands, old)
	}
	removal := slices.Clone(d.commands[i].Args)
	at := slices.Index(removal, "-S") + 1
	removal[at] = strings.ReplaceAll(removal[at], old, empty())
	removal[at] = regexp.MustCompile(`vg_seqno=[0-9]+`).ReplaceAllString(removal[at], "vg_seqno="+strings.TrimSpace(admin(t, "vgs", "--noheadings", "-o", "vg_seqno", realGroup)))
	admin(t, "lvcreate", "-y", "--type", "thin", "-V", "4m", "--thinpool", lvm.DefaultPool, "-n", "theirs", realGroup)
	before := b.group(t)
	admin(t, append([]string{"lvremove"}, removal...)...)
	if after := b.group(t); after.Seqno != before.Seqno || len(after.LVs) != len(before.LVs) {
		t.Errorf("the group changed from %+v to %+v", before, after)
	}
	admin(t, "lvremove", "-y", realGroup+"/theirs")
	must(t, d.ExtendThinPools(t.Context()))
	if lvs := b.group(t).LVs; len(lvs) > 0 {
		t.Errorf("the group has %+v", lvs)
	}
}
