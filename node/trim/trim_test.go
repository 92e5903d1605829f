package trim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// node is a fake. Each range is a GiB, and takes a second.
type node struct {
	mounted []FileSystem
	sizes   map[string]lvm.Bytes  // by the volume's name
	errs    map[lvm.Bytes][]error // by the start of a range, in order of the requests
	did     []string
	times   []time.Time
}

func (n *node) Trimmable(context.Context) ([]FileSystem, error) { return n.mounted, nil }

func (n *node) Trim(_ context.Context, id lvm.ID, from lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	if from >= n.sizes[id.LV] {
		return 0, 0, io.EOF
	}
	n.did, n.times = append(n.did, id.LV+" "+from.String()), append(n.times, time.Now())
	time.Sleep(time.Second)
	if list := n.errs[from]; len(list) > 0 {
		n.errs[from] = list[1:]
		return 0, 0, list[0]
	}
	return lvm.MiB, from + lvm.GiB, nil
}

// newNode is one with volumes a, b, ... of these sizes.
func newNode(sizes ...lvm.Bytes) *node {
	n := &node{sizes: map[string]lvm.Bytes{}}
	for i, size := range sizes {
		name := string(rune('a' + i))
		n.sizes[name] = size
		n.mounted = append(n.mounted, FileSystem{ID: lvm.ID{VG: "vg", LV: name}, Volume: name})
	}
	return n
}

// outcome is what a Trimmer reported.
type outcome struct {
	done, failed []string
	trimmed      lvm.Bytes
}

// run runs a Trimmer for a while of fake time. Intervals are by the volume's name.
func run(t *testing.T, n *node, intervals map[string]string, wait time.Duration) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), wait)
		defer stop()
		New(Config{Node: n, Log: slog.New(slog.DiscardHandler), Interval: func(volume string) string { return intervals[volume] },
			Failed: func(_ context.Context, volume, message string) { o.failed = append(o.failed, volume+": "+message) },
			Done: func(trimmed lvm.Bytes, _ time.Duration, err error) {
				o.trimmed += trimmed
				o.done = append(o.done, fmt.Sprint(err))
			}}).Run(ctx)
	})
	return o
}

// TestOptIn: only file systems with an interval are trimmed, in ranges, within an hour, and then once an interval.
func TestOptIn(t *testing.T) {
	n := newNode(2*lvm.GiB+lvm.MiB, lvm.GiB, lvm.GiB)
	o := run(t, n, map[string]string{"a": "24h", "c": "never"}, 26*time.Hour)
	once := []string{"a 0 B", "a 1 GiB", "a 2 GiB"}
	if !slices.Equal(n.did, slices.Concat(once, once)) || len(o.done) != 2 || len(o.failed) != 0 || o.trimmed != 6*lvm.MiB {
		t.Errorf("requests %q, outcome %+v", n.did, o)
	}
	if pause := n.times[1].Sub(n.times[0]); pause != 2*time.Second {
		t.Errorf("a range of a second was followed after %s", pause)
	}
	if again := n.times[3].Sub(n.times[0]); again < 24*time.Hour || again > 24*time.Hour+2*period {
		t.Errorf("the second trim came after %s", again)
	}
}

// TestOneAtATime: file systems that are due together are trimmed one after another.
func TestOneAtATime(t *testing.T) {
	n := newNode(2*lvm.GiB, lvm.GiB)
	run(t, n, map[string]string{"a": "1h", "b": "1h"}, 90*time.Minute)
	if want := []string{"a 0 B", "a 1 GiB", "b 0 B"}; !slices.Equal(n.did, want) {
		t.Fatalf("requests %q, want %q", n.did, want)
	}
	for i := range n.times[1:] {
		if pause := n.times[i+1].Sub(n.times[i]); pause < time.Second {
			t.Errorf("%q began %s after %q", n.did[i+1], pause, n.did[i])
		}
	}
}

func TestFailures(t *testing.T) {
	busy, broken := lvm.Errorf(lvm.KindBusy, "retry"), errors.New("no discard")
	for name, test := range map[string]struct {
		errs map[lvm.Bytes][]error
		did  int
		done string
		fail string
	}{
		"busy for a moment":        {map[lvm.Bytes][]error{0: {busy, busy}}, 4, "<nil>", ""},
		"smaller than its device":  {map[lvm.Bytes][]error{lvm.GiB: {io.EOF}}, 2, "<nil>", ""},
		"unmounted in the middle":  {map[lvm.Bytes][]error{lvm.GiB: {lvm.Errorf(lvm.KindNotFound, "gone")}}, 2, "", ""},
		"no support":               {map[lvm.Bytes][]error{0: {broken}}, 1, "no discard", "cannot trim the file system after 0 B: no discard"},
		"busy beyond the deadline": {map[lvm.Bytes][]error{0: slices.Repeat([]error{busy}, 10000)}, 0, "did not end within 30m0s", "did not end within 30m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(2 * lvm.GiB)
			n.errs = test.errs
			o := run(t, n, map[string]string{"a": "20h"}, 2*time.Hour)
			if test.did > 0 && len(n.did) != test.did {
				t.Errorf("requests %q", n.did)
			}
			if done, failed := strings.Join(o.done, ";"), strings.Join(o.failed, ";"); !strings.Contains(done, test.done) || (done == "") != (test.done == "") ||
				!strings.Contains(failed, test.fail) || (failed == "") != (test.fail == "") {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// TestWrongInterval: a wrong annotation is reported once, and changes nothing.
func TestWrongInterval(t *testing.T) {
	n := newNode(lvm.GiB)
	o := run(t, n, map[string]string{"a": "1m"}, 5*time.Hour)
	if len(n.did) != 0 || len(o.failed) != 1 || !strings.Contains(o.failed[0], `the trim interval is "1m"`) {
		t.Errorf("requests %q, outcome %+v", n.did, o)
	}
	for text, want := range map[string]time.Duration{"": 0, "never": 0, "1h": time.Hour, "168h": 168 * time.Hour} {
		if got, err := ParseInterval(text); got != want || err != nil {
			t.Errorf("%q: %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"59m", "-24h", "daily", "0", "100000h", strings.Repeat("9", 5000)} {
		if got, err := ParseInterval(text); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.20q: %s, %v", text, got, err)
		}
	}
}

// TestStuck: while a request does not return, the deadline is reported once and nothing else is trimmed.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		n := &stuckNode{node: *newNode(lvm.GiB, lvm.GiB), release: release}
		var failed []string
		trimmer := New(Config{Node: n, Log: slog.New(slog.DiscardHandler), Interval: func(string) string { return "1h" },
			Failed: func(_ context.Context, volume, message string) { failed = append(failed, volume+": "+message) },
			Done:   func(lvm.Bytes, time.Duration, error) {}})
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Hour)
		defer stop()
		trimmer.Run(ctx)
		if n.requests.Load() != 1 || len(failed) != 1 || !strings.Contains(failed[0], "did not end within") {
			t.Errorf("%d requests, failures %q", n.requests.Load(), failed)
		}
		close(release)
		synctest.Wait()
		after, end := context.WithTimeout(t.Context(), 2*time.Hour)
		defer end()
		trimmer.Run(after)
		if n.requests.Load() < 3 {
			t.Errorf("when it has returned: %d requests", n.requests.Load())
		}
	})
}

// stuckNode does not return until it is released.
type stuckNode struct {
	node
	requests atomic.Int64
	release  chan struct{}
}

func (n *stuckNode) Trim(_ context.Context, _ lvm.ID, from lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	if from > 0 {
		return 0, 0, io.EOF
	}
	n.requests.Add(1)
	<-n.release
	return 0, lvm.GiB, nil
}
