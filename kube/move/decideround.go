package move

import (
	"fmt"
	"time"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// The decisions on rounds: snapshots of a thin volume that the target copies while pods use it, so that little is left when they have stopped.

const (
	// smallRest is what a copy takes a second or two for: a further round would not shorten the stop.
	smallRest = 64 * lvm.MiB
	// quickRounds is how many rounds follow each other at once. The first copies everything.
	quickRounds = 6
	// roundEvery is the interval of the further ones, which keep the rest small until a user deletes the pods. It grows with their number.
	roundEvery = 5 * time.Minute
	// mostRounds bounds them: then the user seems to have forgotten the move.
	mostRounds = 48
)

// newest is the newest round; nil: there is none.
func (v *view) newest() *Round {
	if len(v.local.Rounds) == 0 {
		return nil
	}
	return &v.local.Rounds[len(v.local.Rounds)-1]
}

// isThin reports whether the volume can be copied ahead at all.
func (v *view) isThin() bool { return v.local.Class.Layout == lvm.LayoutThin }

// isAhead reports whether the target has the newest round.
func (v *view) isAhead() bool {
	newest := v.newest()
	return newest != nil && answered(v.pv).Round == newest.Move
}

// isPublished reports whether the PersistentVolume has the newest round's offer.
func (v *view) isPublished() bool {
	o, ok := offered(v.pv)
	return ok && v.offer != nil && o.Move == v.offer.Move && string(o.Text) == string(v.offer.Text)
}

// copyAhead is the next step of copying ahead; wait: there is none now.
func (v *view) copyAhead() step {
	const phase = api.MoveStopping
	newest := v.newest()
	switch {
	case !v.isThin():
		return waiting(phase, "")
	case newest == nil && v.alone == nil:
		return step{do: takeRound, phase: phase}
	case newest == nil:
		return waiting(phase, "")
	case v.offer == nil:
		return waiting(phase, "") // it cannot be compared now
	case !v.isPublished():
		return step{do: publishOffer, phase: phase}
	case !v.isAhead():
		return waiting(phase, "")
	case len(v.local.Rounds) > 1:
		return step{do: dropFormer, phase: phase}
	case v.alone == nil && v.wantsAnother(newest):
		return step{do: takeRound, phase: phase}
	}
	return waiting(phase, "")
}

// wantsAnother reports whether a round after a complete one is due: at once, while the rounds shrink and are not small, and later from time to time.
func (v *view) wantsAnother(newest *Round) bool {
	sent := answered(v.pv).Sent
	shrinks := newest.Before == 0 || sent < newest.Before/4*3
	if newest.Number < quickRounds && sent > smallRest && shrinks {
		return true
	}
	every := roundEvery * time.Duration(max(1, newest.Number-quickRounds))
	return newest.Number < mostRounds && v.now.Sub(newest.Created) >= every
}

// nextRound is the number of the round that the step takeRound takes, and what the one before it copied.
func (v *view) nextRound() (number int, before lvm.Bytes) {
	newest := v.newest()
	if newest == nil {
		return 1, 0
	}
	return newest.Number + 1, answered(v.pv).Sent
}

// afterPods holds the volume. A round under way is completed before: the target has a part of it, and can only go on with it.
func (v *view) afterPods() step {
	const phase = api.MoveCopying
	newest := v.newest()
	switch {
	case newest == nil || v.isAhead():
		return step{do: hold, phase: phase}
	case v.offer == nil:
		return waiting(phase, "waits until the driver on node "+v.node+" has compared the volume's snapshots")
	case !v.isPublished():
		return step{do: publishOffer, phase: phase}
	}
	a := answered(v.pv)
	if a.Problem != "" {
		return a.problem(phase)
	}
	s := waiting(phase, a.share(v.rec.To)+"; then follows what changed meanwhile")
	s.of = newest.Move
	return s
}

// waitForPod says what the user has to do, and when.
func (v *view) waitForPod(p podUse) step {
	if p.deleted {
		return waiting(api.MoveStopping, fmt.Sprintf("waits until pod %s has ended on node %s", p.name, v.node))
	}
	until := fmt.Sprintf("delete it (kubectl -n %s delete pod %s). A pod that replaces it waits until the volume is on node %s", v.rec.Namespace, p.name, v.rec.To)
	if p.stopped {
		s := blocked(api.MoveStopping, fmt.Sprintf("pod %s cannot start again on node %s while the volume moves: %s. Or cancel the move", p.name, v.node, until))
		s.ready = true
		return s
	}
	newest, a := v.newest(), answered(v.pv)
	var s step
	switch {
	case newest == nil && !v.isThin():
		s = blocked(api.MoveStopping, fmt.Sprintf("pod %s still uses the volume on node %s: %s", p.name, v.node, until))
	case newest == nil:
		s = blocked(api.MoveStopping, fmt.Sprintf("pod %s still uses the volume on node %s: %s. The volume is copied only then: %v", p.name, v.node, until, v.alone))
	case newest.Number > 1 || v.isAhead():
		s = blocked(api.MoveStopping, fmt.Sprintf("pod %s still uses the volume on node %s, and the volume is copied, but for what changed lately: %s", p.name, v.node, until))
		s.ready = true
	case a.Queued:
		return waiting(api.MoveStopping, fmt.Sprintf("pod %s uses the volume, and its copy to node %s %s", p.name, v.rec.To, a.Problem))
	case a.Problem != "":
		return blocked(api.MoveStopping, fmt.Sprintf("pod %s uses the volume on node %s, and the volume cannot be copied to node %s: %s", p.name, v.node, v.rec.To, a.Problem))
	default:
		s = waiting(api.MoveStopping, fmt.Sprintf("%s while pod %s uses the volume; wait until all is copied, and the pod stops for a short time only", a.share(v.rec.To), p.name))
	}
	if newest != nil && newest.Number <= quickRounds {
		s.of = newest.Move
	}
	return s
}
