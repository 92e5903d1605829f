package oplock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// lockWatchdog reports groups whose lock one operation holds for too long: a command or flush waits for an unresponsive disk.
// The driver never kills the command, but later operations on the group fail at once, and other groups are not affected.
type lockWatchdog struct {
	limit time.Duration
	log   *slog.Logger
	name  func(uuid lvm.VGUUID) lvm.VGName // of a group

	mu     sync.Mutex
	groups map[lvm.VGUUID]*watchedHolder // by group's UUID
}

// watchedHolder describes the holder of a group's lock.
type watchedHolder struct {
	since   time.Time
	running string // the LVM command that runs now, or ran last; "" for none
	hung    error  // why the group is blocked; nil if it is not
	holder  int    // counts the holders, so that a late alarm ignores the next one
	waiters map[*context.CancelCauseFunc]bool
}

func (w *lockWatchdog) group(uuid lvm.VGUUID) *watchedHolder {
	if w.groups == nil {
		w.groups = map[lvm.VGUUID]*watchedHolder{}
	}
	g := w.groups[uuid]
	if g == nil {
		g = &watchedHolder{waiters: map[*context.CancelCauseFunc]bool{}}
		w.groups[uuid] = g
	}
	return g
}

// until returns a context that also ends when the group becomes blocked, which is then its cause.
func (w *lockWatchdog) until(ctx context.Context, uuid lvm.VGUUID) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(uuid)
	if g.hung != nil {
		cancel(g.hung)
	}
	g.waiters[&cancel] = true
	return waiting, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(g.waiters, &cancel)
		cancel(nil)
	}
}

// hold starts to watch the operation that now holds the group's lock.
func (w *lockWatchdog) hold(uuid lvm.VGUUID, what string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(uuid)
	g.since, g.running = time.Now(), ""
	g.holder++
	turn := g.holder
	alarm := time.AfterFunc(w.limit, func() { w.alarm(uuid, turn, what) })
	return func() {
		alarm.Stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		g.holder++
		if g.hung != nil {
			g.hung = nil
			w.log.Info("volume group no longer blocked", "vg", w.name(uuid), "vg_uuid", uuid, "operation", what, "after", time.Since(g.since).Round(time.Second))
		}
	}
}

func (w *lockWatchdog) alarm(uuid lvm.VGUUID, turn int, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.group(uuid)
	if g.holder != turn {
		return
	}
	culprit := "an operation"
	if g.running != "" {
		culprit = "the command lvm " + g.running
	}
	g.hung = fmt.Errorf("%s has been running since %s and exceeded its time limit, probably because a disk is unresponsive: see the kernel's log",
		culprit, g.since.Format(time.TimeOnly))
	w.log.Error("LVM command exceeded its time limit; volume group blocked, capacity reported as 0", "vg", w.name(uuid), "vg_uuid", uuid, "operation", what, "error", g.hung)
	for cancel := range g.waiters {
		(*cancel)(g.hung)
	}
}

// noteCommand records the command that the holder of the lock runs.
func (w *lockWatchdog) noteCommand(uuid lvm.VGUUID, command string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.group(uuid).running = command
}

// blockedFor returns for how long, and why, a group is blocked; nil if it is not.
func (w *lockWatchdog) blockedFor(uuid lvm.VGUUID) (since time.Duration, hung error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g := w.groups[uuid]
	if g == nil || g.hung == nil {
		return 0, nil
	}
	return time.Since(g.since), g.hung
}
