package move

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

var errKilled = errors.New("killed")

// TestInvariant interleaves both agents, which are killed at any request and call, with Kubernetes' controllers, pods and users. The invariant holds after each of
// them. When the disturbances end, the move has arrived or is undone.
func TestInvariant(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		policy := rapid.SampledFrom([]corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain}).Draw(rt, "policy")
		w := newWorld(policy, "data", "wal")
		w.acked["pvc-uid-data"], w.acked["pvc-uid-wal"] = 0, 0
		s := &simulation{w: w, t: rt}
		if rapid.Bool().Draw(rt, "thin") {
			w.makeThin()
		}
		w.nodes["node-1"].noRoom = rapid.IntRange(0, 3).Draw(rt, "no room") == 0
		w.startPod()
		w.annotateClaim("data", api.AnnotationMoveTo, "node-2")
		w.annotateClaim("wal", api.AnnotationMoveTo, "node-2")
		for range rapid.IntRange(20, 250).Draw(rt, "steps") {
			s.act()
		}
		s.settle(policy)
	})
}

type simulation struct {
	w      *world
	t      *rapid.T
	within string // the node whose agent is taking a step; it takes one at a time for the claims of a namespace
	trace  []string
}

// act is one move of one of the actors.
func (s *simulation) act() {
	switch n := rapid.IntRange(0, 40).Draw(s.t, "actor"); {
	case n < 24 && s.within == "":
		s.agent([]string{"node-1", "node-2"}[n%2], []string{"data", "wal"}[n/2%2])
	case n < 24:
		s.agent(map[string]string{"node-1": "node-2", "node-2": "node-1"}[s.within], []string{"data", "wal"}[n/2%2])
	case n < 30:
		s.w.reconcile()
	default:
		s.user(n)
	}
	s.expect()
}

func (s *simulation) user(n int) {
	claim := rapid.SampledFrom([]string{"data", "wal"}).Draw(s.t, "claim")
	switch n {
	case 30, 31:
		s.w.startPod()
	case 32:
		s.w.write()
	case 33:
		s.w.stopPod(false)
	case 34:
		s.w.stopPod(true)
	case 35:
		s.w.unstage()
	case 36:
		s.w.annotateClaim(claim, api.AnnotationMoveTo, rapid.SampledFrom([]string{"node-1", "node-2", "", "node-9"}).Draw(s.t, "to"))
	case 37:
		s.w.annotateClaim(claim, api.AnnotationMoveFinish, rapid.SampledFrom([]string{"node-1", "node-2"}).Draw(s.t, "of"))
	case 38:
		if rapid.IntRange(0, 5).Draw(s.t, "delete") == 0 {
			s.w.deleteClaim(claim)
		}
	case 40:
		s.w.now = s.w.now.Add(roundEvery)
	case 39:
		s.w.annotateClaim(claim, api.AnnotationSelectedNode, rapid.SampledFrom([]string{"node-1", "node-2"}).Draw(s.t, "selected"))
	}
	s.trace = append(s.trace, fmt.Sprint("user ", n, " ", claim))
}

// agent lets a node's agent take a step, in which it may be killed, and others act between its reading and its writing.
func (s *simulation) agent(node, claim string) {
	s.w.before = func() error {
		if s.within == "" && rapid.IntRange(0, 9).Draw(s.t, "meanwhile") == 0 {
			before, after := s.w.before, s.w.after
			s.within = node
			s.act()
			s.within = ""
			s.w.before, s.w.after = before, after
		}
		return s.killed()
	}
	s.w.after = s.killed
	defer func() { s.w.before, s.w.after = func() error { return nil }, func() error { return nil } }()
	a := s.w.agents[node]
	units, _ := a.units(s.t.Context(), "ns")
	u := unit{namespace: "ns", claim: claim}
	if i := slices.IndexFunc(units, func(u unit) bool { return u.claim == claim }); i >= 0 {
		u = units[i]
	}
	did, err := a.one(s.t.Context(), u)
	if did.do != wait && did.do != "" {
		s.trace = append(s.trace, fmt.Sprint(node, " ", claim, ": ", did.do, " ", err))
	}
	if errors.Is(err, errKilled) {
		s.w.agents[node] = s.w.newAgent(node)
	}
}

func (s *simulation) killed() error {
	if rapid.IntRange(0, 29).Draw(s.t, "kill") == 0 {
		return errKilled
	}
	return nil
}

func (s *simulation) expect() {
	if err := s.w.check(); err != nil {
		s.fail("%v", err)
	}
}

func (s *simulation) fail(format string, args ...any) {
	for _, line := range s.trace {
		s.t.Log(line)
	}
	for name, pv := range s.w.pvs {
		s.t.Logf("%s: on %s, parked %v, %s, %v", name, pending.NodeOf(pv), isParked(pv), pv.Status.Phase, pv.Annotations)
	}
	for _, d := range s.w.nodes {
		for _, v := range d.vols {
			s.t.Logf("%s: %+v", d.node, *v)
		}
	}
	s.t.Fatalf(format, args...)
}

// settle lets everything come to rest, and expects that the user's last wish is fulfilled.
func (s *simulation) settle(policy corev1.PersistentVolumeReclaimPolicy) {
	s.w.stopPod(false)
	wish := ""
	for _, claim := range []string{"data", "wal"} {
		if c := s.w.claims[claim]; c != nil && (wish == "" || c.Annotations[api.AnnotationMoveTo] == "node-1") {
			wish = "node-1"
			if c.Annotations[api.AnnotationMoveTo] == "node-2" {
				wish = "node-2"
			}
		}
	}
	for range 120 {
		for _, claim := range []string{"data", "wal"} {
			s.w.annotateClaim(claim, api.AnnotationMoveTo, wish)
			s.w.annotateClaim(claim, api.AnnotationMoveFinish, map[string]string{"node-1": "node-2", "node-2": "node-1"}[s.onlyNode(claim)])
			if c := s.w.claims[claim]; c != nil && c.Annotations[api.AnnotationSelectedNode] != s.onlyNode(claim) && s.w.pvs[c.Spec.VolumeName] != nil && !isMarked(s.w.pvs[c.Spec.VolumeName]) {
				s.w.annotateClaim(claim, api.AnnotationSelectedNode, s.onlyNode(claim)) // as the event says
			}
			for _, node := range []string{"node-1", "node-2"} {
				a := s.w.agents[node]
				for _, u := range append(unitsOf(s.t, a), unit{namespace: "ns", claim: claim}) {
					if did, err := a.one(s.t.Context(), u); did.do != wait && did.do != "" || err != nil {
						s.trace = append(s.trace, fmt.Sprint("settling ", node, " ", u.claim, ": ", did.do, " ", err))
					}
					s.expect()
				}
			}
			s.w.reconcile()
			s.expect()
		}
	}
	for _, claim := range []string{"data", "wal"} {
		s.expectSettled(claim, wish, policy)
	}
}

func unitsOf(t *rapid.T, a *Agent) []unit {
	units, err := a.units(t.Context(), "ns")
	unnoted, more := a.units(t.Context(), "") // received, without a record
	if err := errors.Join(err, more); err != nil {
		t.Fatal(err)
	}
	return append(units, unnoted...)
}

// onlyNode is the node of a claim's PersistentVolume.
func (s *simulation) onlyNode(claim string) string {
	if pv := s.w.pvs["pvc-uid-"+claim]; pv != nil {
		return pending.NodeOf(pv)
	}
	return ""
}

func (s *simulation) expectSettled(claim, wish string, policy corev1.PersistentVolumeReclaimPolicy) {
	name := "pvc-uid-" + claim
	pv := s.w.pvs[name]
	c := s.w.claims[claim]
	if c == nil {
		s.expectGone(name, policy)
		return
	}
	switch {
	case pv == nil || pending.NodeOf(pv) != wish || isParked(pv) || isMarked(pv) || pv.Spec.PersistentVolumeReclaimPolicy != policy:
		s.fail("claim %s should be on %s; its PersistentVolume is %+v", claim, wish, pv)
	case !isBound(c, pv) || c.Annotations[api.AnnotationSelectedNode] != wish:
		s.fail("claim %s is %s with the annotations %v", claim, c.Status.Phase, c.Annotations)
	}
	for node, d := range s.w.nodes {
		v := d.vols[name]
		if (node == wish) != (v != nil) || v != nil && (v.State != lvm.StateReady || v.Record != "" || v.ID.String() != pv.Spec.CSI.VolumeHandle) {
			s.fail("claim %s should be on %s: %s has %+v", claim, wish, node, v)
		}
	}
}

// expectGone expects that a deleted claim left what its policy says.
func (s *simulation) expectGone(name string, policy corev1.PersistentVolumeReclaimPolicy) {
	ready := 0
	for _, d := range s.w.nodes {
		if v := d.vols[name]; v != nil && v.State == lvm.StateReady {
			ready++
		} else if v != nil && v.State != stateMoved {
			s.fail("the deleted claim's volume on %s is %+v", d.node, *v)
		}
	}
	pv := s.w.pvs[name]
	if retained := policy == corev1.PersistentVolumeReclaimRetain; retained != (ready == 1) || retained != (pv != nil) || pv != nil && (isMarked(pv) || isParked(pv)) {
		s.fail("the deleted claim left %d ready volumes and PersistentVolume %+v", ready, pv)
	}
}
