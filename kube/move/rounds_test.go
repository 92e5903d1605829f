package move

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
)

// playThin is a move of thin volumes that a pod uses: they are copied ahead.
func playThin(t *testing.T) *inSteps {
	t.Helper()
	return playThinWith(t, corev1.PersistentVolumeReclaimDelete)
}

func playThinWith(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy) *inSteps {
	t.Helper()
	p := &inSteps{world: newWorld(policy, "data", "wal"), t: t, dead: map[string]bool{}}
	p.makeThin()
	p.acked["pvc-uid-data"], p.acked["pvc-uid-wal"] = 0, 0
	p.startPod()
	p.write()
	for _, claim := range []string{"data", "wal"} {
		p.annotateClaim(claim, api.AnnotationMoveTo, "node-2")
	}
	return p
}

// did counts a step of both claims.
func (p *inSteps) did(do action) (n int) {
	for _, s := range p.steps {
		if strings.HasSuffix(s, ": "+string(do)) {
			n++
		}
	}
	return n
}

func (p *inSteps) roundsLeft() (n int) {
	for _, d := range p.nodes {
		for _, v := range d.vols {
			n += len(v.rounds)
		}
	}
	return n
}

// settled expects that both claims are there, and that no round is left.
func (p *inSteps) settled(node string) {
	p.t.Helper()
	p.expect(node)
	p.before, p.after = func() error { return nil }, func() error { return nil }
	for _, d := range p.nodes {
		if err := d.DropUnneeded(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
	if n := p.roundsLeft(); n > 0 {
		p.t.Errorf("%d rounds are left", n)
	}
}

// whole runs a move: the pod writes whenever the agents wait, and stops when they wait for it. At most so many steps are taken.
func (p *inSteps) whole(most int) (steps int) {
	p.t.Helper()
	stopped := p.pods["db-0"].Status.Phase != corev1.PodRunning
	for ; steps < most; steps++ {
		p.write()
		switch {
		case p.step():
		case !stopped && p.status("data").Phase == api.MoveStopping:
			p.stopPod(false)
			stopped = true
		default:
			p.now = p.now.Add(time.Minute)
			if !p.step() {
				return steps
			}
		}
	}
	return steps
}

// TestCopiedAhead: the volumes are copied while the pod writes; the status says when to delete it. Only one round is kept.
func TestCopiedAhead(t *testing.T) {
	p := playThin(t)
	p.rest()
	if n := p.did(takeRound); n < 4 || p.did(hold) > 0 {
		t.Errorf("%d rounds of both volumes were taken, and %d were held, while a pod uses them", n, p.did(hold))
	}
	if n := p.roundsLeft(); n != 2 {
		t.Errorf("%d rounds are kept of 2 volumes", n)
	}
	if s := p.status("data"); s.Phase != api.MoveStopping || !strings.Contains(s.Message, "is copied, but for what changed lately: delete it") {
		t.Errorf("the status is %+v", s)
	}
	p.write()
	p.stopPod(false)
	ahead := p.did(receive)
	p.rest()
	p.settled("node-2")
	if n := p.did(receive) - ahead; n > 4 {
		t.Errorf("%d steps of copying followed the end of the pod", n)
	}
}

// TestProgressAhead: the status has the figures of a copy while the pod runs, too, and none before the target knows them.
func TestProgressAhead(t *testing.T) {
	p := playThin(t)
	for range 400 {
		if s := p.status("data"); s.Phase == api.MoveStopping && strings.Contains(s.Message, "GiB are copied to node node-2 while pod db-0") {
			if s.Total == 0 || !strings.HasPrefix(s.Message, fmt.Sprintf("%s of %s are copied", lvm.Bytes(s.Done), lvm.Bytes(s.Total))) {
				t.Errorf("the status is %+v", s)
			}
			return
		}
		if s := p.status("data"); strings.Contains(s.Message, "0 B of 0 B") {
			t.Errorf("the status is %+v", s)
		}
		p.now = p.now.Add(statusEvery)
		if !p.step() {
			break
		}
	}
	t.Fatalf("no status of a copy: %+v after %q", p.status("data"), p.steps)
}

// TestKilledAtEachRequest kills an agent before each request and call of a move that copies ahead: the one before is carried out.
func TestKilledAtEachRequest(t *testing.T) {
	requests := 0
	p := playThin(t)
	p.before = func() error { requests++; return nil }
	p.whole(1000)
	p.settled("node-2")
	if requests < 100 {
		t.Fatalf("%d requests", requests)
	}
	for n := range requests {
		p, at := playThin(t), 0
		p.before = func() error {
			if at++; at == n+1 {
				p.killed = true
				return errKilled
			}
			return nil
		}
		p.whole(1000)
		p.settled("node-2")
		if t.Failed() {
			t.Fatalf("killed before request %d", n)
		}
	}
}

// eachStateAhead is eachState of a move that copies ahead, of some of its many states.
func eachStateAhead(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy, disturb func(*inSteps), expect func(p *inSteps, switched bool)) {
	t.Helper()
	steps := playThinWith(t, policy).whole(1000)
	for n := 0; n <= steps; n += 7 {
		p := playThinWith(t, policy)
		p.whole(n)
		switched := p.handedOver()
		disturb(p)
		p.whole(1000)
		expect(p, switched)
		if t.Failed() {
			t.Fatalf("disturbed after %d steps: %q", n, p.steps[max(0, min(n, len(p.steps))-3):min(n+1, len(p.steps))])
		}
	}
}

// TestOutcomesAhead: what becomes of a move that copies ahead if something happens in any of its states.
func TestOutcomesAhead(t *testing.T) {
	const policy = corev1.PersistentVolumeReclaimDelete
	outcomes(t, eachStateAhead)
	t.Run("cancelled and begun again", func(t *testing.T) {
		eachStateAhead(t, policy, func(p *inSteps) {
			p.annotateClaim("wal", api.AnnotationMoveTo, "")
			for range 7 {
				p.step()
			}
			p.annotateClaim("wal", api.AnnotationMoveTo, "node-2")
		}, func(p *inSteps, _ bool) { p.settled("node-2") })
	})
	t.Run("no more room for snapshots", func(t *testing.T) {
		eachStateAhead(t, policy, func(p *inSteps) { p.nodes["node-1"].noRoom = true }, func(p *inSteps, _ bool) { p.settled("node-2") })
	})
	t.Run("snapshots of no use", func(t *testing.T) {
		eachStateAhead(t, policy, func(p *inSteps) { p.nodes["node-1"].useless = true }, func(p *inSteps, _ bool) { p.settled("node-2") })
	})
	t.Run("snapshots lost", func(t *testing.T) {
		eachStateAhead(t, policy, func(p *inSteps) {
			for _, v := range p.nodes["node-1"].vols {
				v.rounds, v.Rounds = nil, nil
			}
		}, func(p *inSteps, _ bool) { p.settled("node-2") })
	})
	t.Run("target's copy lost", func(t *testing.T) {
		eachStateAhead(t, policy, func(p *inSteps) {
			for name, v := range p.nodes["node-2"].vols {
				if v.State == stateReceiving {
					delete(p.nodes["node-2"].vols, name)
				}
			}
		}, func(p *inSteps, _ bool) { p.settled("node-2") })
	})
}

// TestNoRoomAhead: without room for snapshots the volumes are copied while the pods are stopped, and the status says why.
func TestNoRoomAhead(t *testing.T) {
	p := playThin(t)
	p.nodes["node-1"].noRoom = true
	p.rest()
	if s := p.status("data"); s.Phase != api.MoveStopping || !strings.Contains(s.Message, "copied only then: no room for a snapshot on node-1") {
		t.Errorf("the status is %+v", s)
	}
	if p.did(publishOffer) > 0 {
		t.Error("something is offered")
	}
	p.nodes["node-1"].noRoom = false
	p.now = p.now.Add(aloneFor)
	p.rest()
	if s := p.status("data"); !strings.Contains(s.Message, "is copied, but") {
		t.Errorf("later the status is %+v", s)
	}
	p.stopPod(false)
	p.rest()
	p.settled("node-2")
}

// TestSlowComparison: while what changed is not known, the move waits, in each of its states, and can be cancelled. It drops and publishes nothing.
func TestSlowComparison(t *testing.T) {
	for _, to := range []string{"node-2", "node-1"} {
		eachStateAhead(t, corev1.PersistentVolumeReclaimDelete, func(p *inSteps) {
			p.nodes["node-1"].slow = true
			p.stopPod(false)
			began := len(p.steps)
			p.rest()
			for _, s := range p.steps[began:] {
				if strings.HasSuffix(s, ": "+string(dropRounds)) {
					p.t.Errorf("a slow comparison drops rounds: %q", p.steps[began:])
				}
			}
			for _, pv := range p.pvs {
				if pv.Annotations[api.AnnotationMoveOffer] == "null" {
					p.t.Errorf("nothing is published as an offer: %q", p.steps[began:])
				}
			}
			if to == "node-1" && !p.handedOver() {
				p.annotateClaim("data", api.AnnotationMoveTo, "")
				p.annotateClaim("wal", api.AnnotationMoveTo, "")
				p.rest()
				p.expect("node-1")
			}
			p.nodes["node-1"].slow = false
		}, func(p *inSteps, _ bool) {
			if to == "node-2" || p.handedOver() {
				p.settled("node-2")
			}
		})
	}
}

// TestProblemAhead: what keeps the target from copying is said while the pod still runs.
func TestProblemAhead(t *testing.T) {
	p := playThin(t)
	p.nodes["node-2"].full = true
	p.rest()
	if s := p.status("data"); s.Phase != api.MoveStopping || !strings.Contains(s.Message, "cannot be copied to node node-2: no room on node-2") {
		t.Errorf("the status is %+v", s)
	}
}

// TestStoppedPod: a pod that lost its containers with the source's power cannot start there again, because the kubelet does not mount the volume. The status says
// what to do in each state, and either answer starts a pod.
func TestStoppedPod(t *testing.T) {
	steps := 0
	for p := playThin(t); p.step(); {
		steps++
	}
	for n := 0; n < steps; n += 3 {
		p := playThin(t)
		for range n {
			p.step()
		}
		p.losePower("node-1")
		p.rest()
		if s := p.status("data"); s.Phase != api.MoveStopping || !strings.Contains(s.Message, "pod db-0 cannot start again on node node-1 while the volume moves: delete it") {
			t.Fatalf("after %d steps the status is %+v", n, s)
		}
		if n%2 == 0 {
			p.stopPod(false)
			p.rest()
			p.settled("node-2")
		} else {
			p.annotateClaim("data", api.AnnotationMoveTo, "")
			p.rest()
			p.settled("node-1")
		}
	}
}

// losePower ends the containers of all pods on a node, as the kubelet says after a boot.
func (w *world) losePower(node string) {
	for _, pod := range w.pods {
		if pod.Spec.NodeName != node {
			continue
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}}
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}
	}
}

// TestQueue: a copy that waits for others says so, without a warning.
func TestQueue(t *testing.T) {
	const busy = "waits for its turn: the source sends 2 volumes at a time, now 2 more"
	for want, p := range map[string]*inSteps{
		busy: play(t, corev1.PersistentVolumeReclaimDelete),
		"pod db-0 uses the volume, and its copy to node node-2 " + busy: playThin(t),
	} {
		p.nodes["node-2"].busy = busy
		p.rest()
		s, err := p.agents["node-1"].one(t.Context(), unit{namespace: "ns", claim: "data", volume: "pvc-uid-data"})
		if err != nil || s.do != wait || s.warn || s.why != want {
			t.Errorf("step %+v, %v", s, err)
		}
		if got := p.status("data"); got.Message != want {
			t.Errorf("the status is %+v, want %s", got, want)
		}
		if p.pods["db-0"].Status.Phase == corev1.PodRunning { // its end does not make others come later
			p.stopPod(false)
			p.rest()
			if got := p.status("data"); got.Phase != api.MoveCopying || got.Message != busy {
				t.Errorf("without the pod the status is %+v", got)
			}
		}
		p.nodes["node-2"].busy = ""
		p.rest()
		p.settled("node-2")
	}
}

// TestForgottenMove: while no user deletes the pod, rounds keep the rest small, at growing intervals, and they end.
func TestForgottenMove(t *testing.T) {
	p := playThin(t)
	p.rest()
	first := p.did(takeRound)
	for range 12 {
		p.now = p.now.Add(roundEvery)
		p.rest()
	}
	hour := p.did(takeRound)
	if hour-first < 2*3 || hour-first > 2*12 {
		t.Errorf("%d rounds of two volumes in an hour", hour-first)
	}
	for range 400 {
		p.now = p.now.Add(5 * time.Hour)
		p.rest()
	}
	if n := p.did(takeRound); n != 2*mostRounds {
		t.Errorf("%d rounds of two volumes, want %d", n, 2*mostRounds)
	}
	p.write()
	p.stopPod(false)
	p.rest()
	p.settled("node-2")
}

// TestWantsAnother: rounds follow each other while that shortens the stop.
func TestWantsAnother(t *testing.T) {
	for _, c := range []struct {
		number       int
		before, sent lvm.Bytes
		age          time.Duration
		want         bool
	}{
		{1, 0, 100 * lvm.GiB, 0, true},
		{1, 0, 10 * lvm.MiB, 0, false},
		{1, 0, 0, 0, false}, // unknown
		{2, 100 * lvm.GiB, 5 * lvm.GiB, 0, true},
		{3, 5 * lvm.GiB, 4 * lvm.GiB, 0, false},
		{3, 5 * lvm.GiB, 3 * lvm.GiB, 0, true},
		{3, 5 * lvm.GiB, 60 * lvm.MiB, 0, false},
		{3, 5 * lvm.GiB, 60 * lvm.MiB, roundEvery, true},
		{quickRounds, 5 * lvm.GiB, lvm.GiB, 0, false},
		{quickRounds + 4, 5 * lvm.GiB, lvm.GiB, 3 * roundEvery, false},
		{quickRounds + 4, 5 * lvm.GiB, lvm.GiB, 4 * roundEvery, true},
		{mostRounds, 5 * lvm.GiB, lvm.GiB, 1000 * roundEvery, false},
	} {
		now := time.Unix(1e9, 0)
		newest := &Round{Move: "r", Number: c.number, Before: c.before, Created: now.Add(-c.age)}
		pv := &corev1.PersistentVolume{}
		pv.Annotations = map[string]string{api.AnnotationMoveAnswer: Answer{Round: "r", Sent: c.sent}.text()}
		v := &view{now: now, pv: pv, local: &Local{Rounds: []Round{*newest}}}
		if got := v.wantsAnother(newest); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// TestReadyMoveIsReadSoon: when all that is missing is the end of a pod, it is noticed within a second or two; and the reading becomes rare.
func TestReadyMoveIsReadSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := playThin(t)
		requests := 0
		p.before = func() error { requests++; return nil }
		p.live(t, "data", "wal")
		p.work(t, 2*time.Minute)
		if s := p.status("data"); !strings.Contains(s.Message, "is copied, but") {
			t.Fatalf("the status is %+v", s)
		}
		p.stopPod(false)
		p.work(t, 3*time.Second)
		if v := p.nodes["node-1"].vols["pvc-uid-data"]; v.State == lvm.StateReady {
			t.Error("the volume is not held 3 s after its pod has ended")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p := playThin(t)
		requests := 0
		p.live(t)
		for range 24 * 60 {
			for _, a := range p.agents {
				a.round(t.Context(), "ns")
			}
			p.now = time.Now()
			p.reconcile()
			time.Sleep(time.Minute)
		}
		p.before = func() error { requests++; return nil }
		p.work(t, time.Hour)
		if requests > 20_000 {
			t.Errorf("two volumes that wait for a pod since a day cost %d requests an hour", requests)
		}
	})
}
