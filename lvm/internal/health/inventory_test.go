package health

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/report"
)

func TestParseThin(t *testing.T) {
	for params, want := range map[string]lvm.Bytes{"4096 8191": 2 * lvm.MiB, "0 -": 0, "8": 4 * lvm.KiB} {
		if got, err := parseThin(params); err != nil || got != want {
			t.Errorf("%q: %d, %v", params, got, err)
		}
	}
	for _, params := range []string{"", "Fail", "Error", "-1 0", "99999999999999999 1"} {
		if got, err := parseThin(params); err == nil {
			t.Errorf("%q: %d", params, got)
		}
	}
}

// TestGroupOfTheDriverAlone: a group belongs to the driver alone if every volume in it does.
func TestGroupOfTheDriverAlone(t *testing.T) {
	ours := lvm.LV{Name: "v", Managed: &lvm.Managed{}}
	for what, c := range map[string]struct {
		lvs  []lvm.LV
		want bool
	}{
		"no volume":         {nil, true},
		"the driver's":      {[]lvm.LV{ours, {Name: "v_rimage_0", Hidden: true}}, true},
		"one of the node's": {[]lvm.LV{ours, {Name: "root"}}, false},
	} {
		if got := oursAlone((lvm.Group{LVs: c.lvs})); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestLastSnapshot: the youngest ready snapshot of a volume counts.
func TestLastSnapshot(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	inv := report.Inventory{Volumes: []report.Volume{{ID: "a"}, {ID: "b"}}, Snapshots: []report.Snapshot{
		{Source: "a", State: string(lvm.StateReady), Created: at(2)}, {Source: "a", State: string(lvm.StateReady), Created: at(1)},
		{Source: "a", State: string(lvm.StateDeleting), Created: at(3)}, {Source: "gone", State: string(lvm.StateReady), Created: at(4)},
	}}
	addLastSnapshots(&inv)
	if a, b := inv.Volumes[0], inv.Volumes[1]; !a.LastSnapshot.Equal(at(2)) || !b.LastSnapshot.IsZero() {
		t.Errorf("got %+v", inv.Volumes)
	}
}
