package engine

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestCacheKeepsTheNewerState: the cache never replaces a state by an older one.
func TestCacheKeepsTheNewerState(t *testing.T) {
	var g cache[lvm.State]
	shows := func(seqno int64) {
		t.Helper()
		if s, _, _ := g.get(); s.Groups[0].Seqno != seqno {
			t.Errorf("seqno = %d, want %d", s.Groups[0].Seqno, seqno)
		}
	}
	began := time.Now()
	g.put(fixture.StateWith(5, nil), began.Add(2*time.Minute), 0)
	g.put(fixture.StateWith(4, nil), began.Add(time.Minute), 0) // a read that began earlier and took longer
	shows(5)
	g.invalidate()
	g.put(fixture.StateWith(6, nil), began.Add(time.Minute), 1) // the expiry is set again
	shows(6)
}
