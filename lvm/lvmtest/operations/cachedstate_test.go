package operations

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/hosttest"
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
			_, b, d := hosttest.StartedWith(t, lvm.Config{CacheTTL: c.freshness})
			class := b.Spec("v", 0).Class
			first := d.MustCapacity(t, class).Available
			b.Admin(t, "lvcreate", "-y", "-l", "10", "-n", "theirs", b.Group)
			now := d.MustCapacity(t, class).Available
			if want := first - 10*lvmtest.ExtentSize; (now == first) != c.stale || (now == want) == c.stale {
				t.Errorf("%s were available; an admin allocated 10 extents, and %s are available", first, now)
			}
			v := d.MustCreate(t, b.Spec("v", 64*lvm.MiB))
			want := first - 10*lvmtest.ExtentSize - v.Size
			if now = d.MustCapacity(t, class).Available; now != want {
				t.Errorf("after a volume of the driver %s are available, want %s", now, want)
			}
			if all := d.Volumes(t); len(all) != 1 {
				t.Errorf("%d volumes are listed, want the one that was just created", len(all))
			}
			hosttest.Must(t, d.Delete(t.Context(), v.ID))
			if all := d.Volumes(t); len(all) != 0 {
				t.Errorf("a deleted volume is still listed: %v", all)
			}
		})
	}
}
