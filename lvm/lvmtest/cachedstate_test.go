package lvmtest

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// TestCachedState: a read-only request may get the cached state, but never one from before a change by this driver, and never one
// older than CacheTTL.
func TestCachedState(t *testing.T) {
	for _, c := range []struct {
		name      string
		freshness time.Duration
		stale     bool
	}{{"kept", time.Hour, true}, {"too old", time.Nanosecond, false}} {
		t.Run(c.name, func(t *testing.T) {
			_, b, d := startedWith(t, lvm.Config{CacheTTL: c.freshness})
			class := b.spec("v", 0).Class
			first := d.capacity(t, class).Available
			b.Admin(t, "lvcreate", "-y", "-l", "10", "-n", "theirs", b.Group)
			now := d.capacity(t, class).Available
			if want := first - 10*ExtentSize; (now == first) != c.stale || (now == want) == c.stale {
				t.Errorf("%s were available; an admin allocated 10 extents, and %s are available", first, now)
			}
			v := d.create(t, b.spec("v", 64*lvm.MiB))
			want := first - 10*ExtentSize - v.Size
			if now = d.capacity(t, class).Available; now != want {
				t.Errorf("after a volume of the driver %s are available, want %s", now, want)
			}
			if all := d.volumes(t); len(all) != 1 {
				t.Errorf("%d volumes are listed, want the one that was just created", len(all))
			}
			must(t, d.Delete(t.Context(), v.ID))
			if all := d.volumes(t); len(all) != 0 {
				t.Errorf("a deleted volume is still listed: %v", all)
			}
		})
	}
}
