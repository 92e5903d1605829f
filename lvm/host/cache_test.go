package host

import (
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/internal/fixture"
)

// TestGlanceKeepsTheLaterReading: whoever was shown a change is not shown the state before it again.
func TestGlanceKeepsTheLaterReading(t *testing.T) {
	var g stateCache
	shows := func(seqno int64) {
		t.Helper()
		if s, _, _ := g.get(); s.Groups[0].Seqno != seqno {
			t.Errorf("the seqno %d is shown, want %d", s.Groups[0].Seqno, seqno)
		}
	}
	began := time.Now()
	g.put(fixture.Told(5, nil), began.Add(2*time.Minute), 0)
	g.put(fixture.Told(4, nil), began.Add(time.Minute), 0) // it began before the other, and took longer
	shows(5)
	g.invalidate()
	g.put(fixture.Told(6, nil), began.Add(time.Minute), 1) // until when it is good is counted anew
	shows(6)
}
