package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/report"
)

// TestScrapesShareAReading: two scrapes at once cost one reading, and one later has its own.
func TestScrapesShareAReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := 0
		r := readings{read: func(context.Context) report.Node {
			count++
			time.Sleep(scrapePatience / 2)
			return report.Node{Inventory: report.Inventory{InFlight: count}}
		}}
		var scrapes sync.WaitGroup
		for range 2 {
			scrapes.Go(func() {
				if n := r.get(); n.InFlight != 1 {
					t.Errorf("a scrape got reading %d", n.InFlight)
				}
			})
		}
		scrapes.Wait()
		if n := r.get(); n.InFlight != 2 {
			t.Errorf("a later scrape got reading %d", n.InFlight)
		}
	})
}

// TestScrapeWhileAReadingHangs: a scrape gets the last reading, with its age, until that is too old.
func TestScrapeWhileAReadingHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Int64 // a time.Duration
		r := readings{read: func(context.Context) report.Node {
			n := report.Node{Time: time.Now()}
			time.Sleep(time.Duration(hang.Load()))
			return n
		}}
		r.get()
		for _, c := range []struct {
			hang, since time.Duration // how long the reading takes, and since when the last one is over
			waits       time.Duration
			age         time.Duration // of the result
		}{
			{hang: scrapePatience - time.Millisecond, waits: scrapePatience - time.Millisecond, age: scrapePatience - time.Millisecond},
			{hang: 20 * time.Second, since: 10 * time.Second, waits: scrapePatience, age: 10*time.Second + scrapePatience},
			{hang: 3 * time.Second, since: lastReadingFor, waits: 3 * time.Second, age: 3 * time.Second},
		} {
			hang.Store(0)
			r.get()
			time.Sleep(c.since)
			began := time.Now()
			hang.Store(int64(c.hang))
			n := r.get()
			if took, age := time.Since(began), time.Since(n.Time); took != c.waits || age != c.age {
				t.Errorf("%+v: a scrape took %s, and its reading is %s old", c, took, age)
			}
			time.Sleep(time.Minute) // until the reading is over
		}
	})
}
