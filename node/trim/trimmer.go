package trim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

const (
	period      = time.Minute      // between two searches for a file system that is due
	firstWithin = time.Hour        // a file system that this process has not trimmed is trimmed within this time
	deadline    = 30 * time.Minute // for one file system
	shortRest   = 100 * time.Millisecond
)

// Node trims the file systems of this node.
type Node interface {
	// Trimmable lists the file systems of this cluster's volumes that are mounted for writing.
	Trimmable(ctx context.Context) ([]FileSystem, error)
	// Trim discards the unused blocks of the range that begins at an offset, and returns where the next range begins. io.EOF: there is no
	// range; lvm.KindBusy: retry; lvm.KindNotFound: the file system is no longer mounted.
	Trim(ctx context.Context, id lvm.ID, from lvm.Bytes) (trimmed, next lvm.Bytes, err error)
}

// Config configures a Trimmer.
type Config struct {
	Node     Node
	Interval func(volume string) string                             // the annotation of the claim that has a PersistentVolume; "": none
	Failed   func(ctx context.Context, volume, message string)      // reports a failure on that claim
	Done     func(trimmed lvm.Bytes, took time.Duration, err error) // observes each trim
	Log      *slog.Logger
}

// Trimmer trims file systems until its context ends.
type Trimmer struct {
	Config
	since map[lvm.ID]time.Time // when the file system was trimmed, or first seen
	wrong map[lvm.ID]string    // annotations that were reported as invalid
	stuck chan struct{}        // closed when the request returns that did not end in time; nil: there is none
}

// New returns a Trimmer.
func New(c Config) *Trimmer {
	c.Log = cmp.Or(c.Log, slog.Default())
	return &Trimmer{Config: c, since: map[lvm.ID]time.Time{}, wrong: map[lvm.ID]string{}}
}

// Run trims what is due until ctx ends.
func (t *Trimmer) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.trimDue(ctx)
		}
	}
}

// trimDue trims each file system that is due, one after another.
func (t *Trimmer) trimDue(ctx context.Context) {
	for ctx.Err() == nil && !t.isStuck() {
		volumes, err := t.volumes(ctx)
		if err != nil {
			t.Log.WarnContext(ctx, "cannot list the file systems to trim", "error", err)
			return
		}
		v, found := due(volumes, time.Now())
		if !found {
			return
		}
		t.trimVolume(ctx, v)
		t.since[v.ID] = time.Now()
	}
}

func (t *Trimmer) isStuck() bool {
	if t.stuck == nil {
		return false
	}
	select {
	case <-t.stuck:
		t.stuck = nil
		return false
	default:
		return true
	}
}

// volumes lists the file systems with an interval, and forgets those that are gone.
func (t *Trimmer) volumes(ctx context.Context) (wanted []volume, err error) {
	mounted, err := t.Node.Trimmable(ctx)
	if err != nil {
		return nil, err
	}
	since, wrong := map[lvm.ID]time.Time{}, map[lvm.ID]string{}
	for _, f := range mounted {
		text := t.Interval(f.Volume)
		interval, err := ParseInterval(text)
		if err != nil {
			if wrong[f.ID] = text; t.wrong[f.ID] != text {
				t.Failed(ctx, f.Volume, err.Error())
			}
			continue
		}
		if interval == 0 {
			continue
		}
		seen, known := t.since[f.ID]
		if !known { // the driver may have trimmed it before it was restarted
			seen = time.Now().Add(min(interval, firstWithin) - interval)
		}
		since[f.ID] = seen
		wanted = append(wanted, volume{f, interval, seen})
	}
	t.since, t.wrong = since, wrong
	return wanted, nil
}

// trimVolume trims one file system, and reports how it ended.
func (t *Trimmer) trimVolume(ctx context.Context, v volume) {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	trimmed, err := t.trimRanges(limited, v.ID)
	if ctx.Err() != nil || lvm.KindOf(err) == lvm.KindNotFound {
		return // the driver stops, or the volume was unmounted
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the trim did not end within %s; the next one starts at the beginning", deadline)
	}
	t.Done(trimmed, time.Since(began), err)
	if err != nil {
		t.Log.WarnContext(ctx, "cannot trim a file system", "volume", v.ID.String(), "trimmed", trimmed, "error", err)
		t.Failed(ctx, v.Volume, fmt.Sprintf("cannot trim the file system after %s: %v", trimmed, err))
		return
	}
	t.Log.InfoContext(ctx, "trimmed a file system", "volume", v.ID.String(), "trimmed", trimmed, "took", time.Since(began))
}

// trimRanges goes through the file system. It rests after each range for as long as the range took.
func (t *Trimmer) trimRanges(ctx context.Context, id lvm.ID) (trimmed lvm.Bytes, err error) {
	for from := lvm.Bytes(0); ; {
		began := time.Now()
		n, next, err := t.trimRange(ctx, id, from)
		switch {
		case errors.Is(err, io.EOF):
			return trimmed, nil
		case err != nil && lvm.KindOf(err) != lvm.KindBusy:
			return trimmed, err
		case err == nil:
			trimmed, from = trimmed+n, next
		}
		if err := rest(ctx, max(time.Since(began), shortRest)); err != nil {
			return trimmed, err
		}
	}
}

// trimRange trims in its own goroutine: a request to a disk that does not respond cannot be interrupted. As long as it has not
// returned, nothing else is trimmed.
func (t *Trimmer) trimRange(ctx context.Context, id lvm.ID, from lvm.Bytes) (trimmed, next lvm.Bytes, err error) {
	type result struct {
		trimmed, next lvm.Bytes
		err           error
	}
	returned, results := make(chan struct{}), make(chan result, 1)
	go func() {
		defer close(returned)
		trimmed, next, err := t.Node.Trim(ctx, id, from)
		results <- result{trimmed, next, err}
	}()
	select {
	case r := <-results:
		return r.trimmed, r.next, r.err
	case <-ctx.Done():
		t.stuck = returned
		return 0, 0, ctx.Err()
	}
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
