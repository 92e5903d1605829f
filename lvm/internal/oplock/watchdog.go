package oplock

import (
	"context"
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// The watchdog reports groups whose lock one operation holds for too long: a command or flush waits for an unresponsive disk.
// The driver never kills the command, but later operations on the group fail at once, and other groups are not affected.

// watchedHolder describes the holder of a group's lock.
type watchedHolder struct {
	since   time.Time
	running string // the LVM command that runs now, or ran last; "" for none
	hung    error  // why the group is blocked; nil if it is not
	holder  int    // counts the holders, so that a late alarm ignores the next one
	waiters map[*context.CancelCauseFunc]bool
}

func (l *GroupLocks) group(uuid lvm.VGUUID) *watchedHolder {
	if l.groups == nil {
		l.groups = map[lvm.VGUUID]*watchedHolder{}
	}
	g := l.groups[uuid]
	if g == nil {
		g = &watchedHolder{waiters: map[*context.CancelCauseFunc]bool{}}
		l.groups[uuid] = g
	}
	return g
}

// UntilBlocked returns a context that also ends when the group becomes blocked, which is then its cause.
func (l *GroupLocks) UntilBlocked(ctx context.Context, uuid lvm.VGUUID) (waiting context.Context, stop func()) {
	waiting, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	if g.hung != nil {
		cancel(g.hung)
	}
	g.waiters[&cancel] = true
	return waiting, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(g.waiters, &cancel)
		cancel(nil)
	}
}

// hold starts to watch the operation that now holds the group's lock.
func (l *GroupLocks) hold(uuid lvm.VGUUID, what string) (release func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	g.since, g.running = time.Now(), ""
	g.holder++
	turn := g.holder
	alarm := time.AfterFunc(l.limit, func() { l.alarm(uuid, turn, what) })
	return func() {
		alarm.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		g.holder++
		if g.hung != nil {
			g.hung = nil
			l.log.Info("volume group no longer blocked", "vg", l.name(uuid), "vg_uuid", uuid, "operation", what, "after", time.Since(g.since).Round(time.Second))
		}
	}
}

func (l *GroupLocks) alarm(uuid lvm.VGUUID, turn int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.group(uuid)
	if g.holder != turn {
		return
	}
	culprit := "an operation"
	if g.running != "" {
		culprit = "the command lvm " + g.running
	}
	g.hung = fmt.Errorf("%s has been running since %s and exceeded its time limit, probably because a disk is unresponsive: see the kernel's log",
		culprit, g.since.Format(time.TimeOnly))
	l.log.Error("LVM command exceeded its time limit; volume group blocked, capacity reported as 0", "vg", l.name(uuid), "vg_uuid", uuid, "operation", what, "error", g.hung)
	for cancel := range g.waiters {
		(*cancel)(g.hung)
	}
}

// NoteCommand records the LVM command that the holder of the group's lock runs.
func (l *GroupLocks) NoteCommand(uuid lvm.VGUUID, command string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.group(uuid).running = command
}

// BlockedFor returns for how long, and why, a group is blocked; nil if it is not.
func (l *GroupLocks) BlockedFor(uuid lvm.VGUUID) (since time.Duration, hung error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[uuid]
	if g == nil || g.hung == nil {
		return 0, nil
	}
	return time.Since(g.since), g.hung
}
