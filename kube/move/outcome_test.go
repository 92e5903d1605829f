package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

// inSteps is a move of the claims data and wal from node-1 to node-2 that goes step by step.
type inSteps struct {
	*world
	t     *testing.T
	steps []string
	dead  map[string]bool // nodes whose agent does not run

	killed bool // an agent was killed, and takes another step with a new process
}

func play(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy) *inSteps {
	t.Helper()
	p := &inSteps{world: newWorld(policy, "data", "wal"), t: t, dead: map[string]bool{}}
	p.acked["pvc-uid-data"], p.acked["pvc-uid-wal"] = 0, 0
	p.startPod()
	p.write()
	p.stopPod(false)
	for _, claim := range []string{"data", "wal"} {
		p.annotateClaim(claim, api.AnnotationMoveTo, "node-2")
	}
	return p
}

// step takes the next step of any agent; false: all wait.
func (p *inSteps) step() bool {
	p.t.Helper()
	for _, node := range p.nodeNames() {
		if p.dead[node] {
			continue
		}
		a := p.agents[node]
		units, err := a.units(p.t.Context(), "ns")
		unknown, failed := a.units(p.t.Context(), "") // copies without a record
		if err = errors.Join(err, failed); err != nil {
			p.t.Fatal(err)
		}
		units = append(units, unknown...)
		for _, claim := range []string{"data", "wal"} {
			u := unit{namespace: "ns", claim: claim}
			if i := slices.IndexFunc(units, func(u unit) bool { return u.claim == claim || u.volume == "pvc-uid-"+claim }); i >= 0 {
				u = units[i]
			}
			before, copied := p.version, p.copied()
			s, err := a.one(p.t.Context(), u)
			if errors.Is(err, errKilled) || p.killed {
				p.agents[node], p.killed = p.newAgent(node), false
			}
			if bad := p.check(); bad != nil {
				p.t.Fatalf("after %s of node %s for %s: %v; before it %q", s.do, node, claim, bad, p.steps)
			}
			p.reconcile()
			if err == nil && s.do != wait && (s.do != receive || p.version != before || p.copied() != copied) {
				p.steps = append(p.steps, fmt.Sprintf("%s %s: %s", node, claim, s.do))
				return true
			}
		}
	}
	return false
}

// copied says how far all copies are.
func (p *inSteps) copied() (text string) {
	for _, node := range p.nodeNames() {
		for _, name := range slices.Sorted(maps.Keys(p.nodes[node].vols)) {
			v := p.nodes[node].vols[name]
			text += fmt.Sprint(v.Move, v.State, v.Base, v.left, " ")
		}
	}
	return text
}

// rest takes steps until all wait.
func (p *inSteps) rest() {
	p.t.Helper()
	for range 400 {
		if !p.step() {
			p.now = p.now.Add(time.Minute)
			if !p.step() {
				return
			}
		}
	}
	p.t.Fatalf("no rest: %q", p.steps[len(p.steps)-20:])
}

// on is the node of a claim's PersistentVolume, if everything is in order; else what is wrong.
func (p *inSteps) on(claim string) string {
	name := "pvc-uid-" + claim
	pv, c := p.pvs[name], p.claims[claim]
	switch {
	case pv == nil:
		return "no PersistentVolume"
	case c != nil && !isBound(c, pv):
		return "not bound"
	case isParked(pv) || isMarked(pv):
		return "parked"
	}
	node := pending.NodeOf(pv)
	if v := p.nodes[node].vols[name]; v == nil || v.State != lvm.StateReady || v.Record != "" || v.ID.String() != pv.Spec.CSI.VolumeHandle {
		return fmt.Sprintf("on %s without its volume: %+v", node, v)
	}
	if c != nil && c.Annotations[api.AnnotationSelectedNode] != node {
		return "the selected node is " + c.Annotations[api.AnnotationSelectedNode]
	}
	return node
}

// states are the volumes of a claim on both nodes.
func (p *inSteps) states(claim string) string {
	var list []string
	for _, node := range p.nodeNames() {
		if v := p.nodes[node].vols["pvc-uid-"+claim]; v != nil {
			list = append(list, node+" "+string(v.State))
		}
	}
	return strings.Join(list, ", ")
}

func (p *inSteps) handedOver() bool {
	return slices.ContainsFunc(p.steps, func(s string) bool { return strings.HasSuffix(s, string(handOver)) })
}

// expect compares where both claims are.
func (p *inSteps) expect(want string) {
	p.t.Helper()
	for _, claim := range []string{"data", "wal"} {
		if got := p.on(claim); got != want {
			p.t.Errorf("claim %s: %s, want %s; the steps were\n%s", claim, got, want, strings.Join(p.steps, "\n"))
		}
	}
}

// TestWholeMove has the steps of one move in their order.
func TestWholeMove(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.rest()
	p.expect("node-2")
	var data []string
	for _, s := range p.steps {
		if node, did, ok := strings.Cut(s, " data: "); ok {
			data = append(data, node[5:]+" "+did)
		}
	}
	want := []action{note, annotate, deleteVolume, dropFinalizers, createParked, hold, publishOffer}
	for i, do := range want {
		if i >= len(data) || data[i] != "1 "+string(do) {
			t.Fatalf("step %d is not %q of node-1 in\n%s", i, do, strings.Join(data, "\n"))
		}
	}
	rest := strings.Join(data[len(want):], ", ")
	for _, order := range [][]string{
		{"2 receive the volume", "1 hand the volume over", "1 announce", "2 note that", "2 finish the copy", "1 select the target", "1 delete the PersistentVolume", "2 create the target's", "2 restore the reclaim", "2 remove the record"},
		{"2 finish the copy", "2 answer the offer", "1 select the target"},
	} {
		from := rest
		for _, s := range order {
			_, after, found := strings.Cut(from, s)
			if !found {
				t.Fatalf("%q is not in its place in %s", s, rest)
			}
			from = after
		}
	}
	if got := p.states("data"); got != "node-1 moved, node-2 ready" {
		t.Errorf("the volumes are %s", got)
	}
}

// eachState disturbs a move before each of its steps.
func eachState(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy, disturb func(*inSteps), expect func(p *inSteps, switched bool)) {
	t.Helper()
	whole := play(t, policy)
	whole.rest()
	for n := range len(whole.steps) + 1 {
		p := play(t, policy)
		for range n {
			p.step()
		}
		switched := p.handedOver()
		disturb(p)
		p.rest()
		expect(p, switched)
		if t.Failed() {
			t.Fatalf("disturbed after %d steps: %q", n, whole.steps[max(0, n-3):min(n+1, len(whole.steps))])
		}
	}
}

// TestOutcomes: what becomes of a move if something happens in any of its states.
func TestOutcomes(t *testing.T) { outcomes(t, eachState) }

// each disturbs a move in its states, and says whether it was handed over by then.
type each func(t *testing.T, policy corev1.PersistentVolumeReclaimPolicy, disturb func(*inSteps), expect func(p *inSteps, switched bool))

// outcomes are what becomes of a move if something happens in any of its states.
func outcomes(t *testing.T, each each) {
	const policy = corev1.PersistentVolumeReclaimDelete
	t.Run("cancelled", func(t *testing.T) {
		each(t, policy, func(p *inSteps) { p.annotateClaim("wal", api.AnnotationMoveTo, "") }, func(p *inSteps, switched bool) {
			p.expect(map[bool]string{false: "node-1", true: "node-2"}[switched])
			if !switched && p.states("data") != "node-1 ready" {
				p.t.Errorf("left %s", p.states("data"))
			}
		})
	})
	t.Run("other target", func(t *testing.T) {
		each(t, policy, func(p *inSteps) {
			p.addNode("node-3")
			p.annotateClaim("data", api.AnnotationMoveTo, "node-3")
			p.annotateClaim("wal", api.AnnotationMoveTo, "node-3")
		}, func(p *inSteps, switched bool) {
			p.expect("node-3")
			if got, want := p.states("data"), map[bool]string{false: "node-1 moved, node-3 ready", true: "node-1 moved, node-2 moved, node-3 ready"}[switched]; got != want {
				p.t.Errorf("the volumes are %s, want %s", got, want)
			}
		})
	})
	t.Run("unknown target", func(t *testing.T) {
		each(t, policy, func(p *inSteps) {
			p.annotateClaim("data", api.AnnotationMoveTo, "node-9")
			p.annotateClaim("wal", api.AnnotationMoveTo, "node-9")
		}, func(p *inSteps, switched bool) { p.expect(map[bool]string{false: "node-1", true: "node-2"}[switched]) })
	})
	t.Run("claims deleted", func(t *testing.T) { testDeletedClaims(t, each, policy) })
	t.Run("retained claims deleted", func(t *testing.T) { testDeletedClaims(t, each, corev1.PersistentVolumeReclaimRetain) })
	t.Run("pod forced", func(t *testing.T) {
		each(t, policy, func(p *inSteps) {
			p.startPod()
			p.stopPod(true)
			v := p.nodes["node-1"].vols["pvc-uid-data"]
			open := v != nil && v.open
			p.rest()
			if open && !strings.HasPrefix(p.states("data"), "node-1 ready") {
				p.t.Errorf("the volume is held while its device is open: %s", p.states("data"))
			}
			p.unstage()
		}, func(p *inSteps, _ bool) { p.expect("node-2") })
	})
	t.Run("expansion requested", func(t *testing.T) {
		began := false
		each(t, policy, func(p *inSteps) {
			began = len(p.steps) > 1 // both claims' moves are noted
			p.claims["data"].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
			p.touch(p.claims["data"])
		}, func(p *inSteps, _ bool) {
			if began {
				p.expect("node-2") // before it is done
			}
			if pv := p.pvs["pvc-uid-data"]; !isMarked(pv) { // else the volume was extended on node-2
				pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
				p.claims["data"].Status.Capacity = pv.Spec.Capacity
				p.touch(pv)
				p.touch(p.claims["data"])
			}
			p.stopPod(false)
			p.rest() // the move begins when the expansion is complete
			p.expect("node-2")
		})
	})
	t.Run("target full", func(t *testing.T) {
		each(t, policy, func(p *inSteps) { p.nodes["node-2"].full = true }, func(p *inSteps, _ bool) { p.expectHeldBack("no room on node-2") })
	})
	t.Run("target lost", func(t *testing.T) {
		each(t, policy, func(p *inSteps) { p.dead["node-2"] = true }, func(p *inSteps, _ bool) { p.expectHeldBack("") })
	})
	t.Run("source lost", func(t *testing.T) { testLostSource(t, each, policy) })
	t.Run("attributes class requested", func(t *testing.T) {
		each(t, policy, func(p *inSteps) {
			gold := "gold"
			p.claims["data"].Spec.VolumeAttributesClassName = &gold
			p.touch(p.claims["data"])
		}, func(p *inSteps, _ bool) {
			p.expect("node-2")
			if pv, claim := p.pvs["pvc-uid-data"], p.claims["data"]; ptr.Deref(pv.Spec.VolumeAttributesClassName, "") != "" || ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, "") != "" {
				p.t.Error("the class is not that of the volume yet, and an object says so")
			}
		})
	})
	t.Run("persistent volume deleted", func(t *testing.T) {
		each(t, policy, func(p *inSteps) { // its finalizers, too: by an admin
			maps.DeleteFunc(p.pvs, func(_ string, pv *corev1.PersistentVolume) bool { return isMarked(pv) })
			p.reconcile()
		}, func(p *inSteps, _ bool) { p.expect("node-2") })
	})
	t.Run("source renamed", func(t *testing.T) { testRenamed(t, each, policy, "node-1") })
	t.Run("target renamed", func(t *testing.T) { testRenamed(t, each, policy, "node-2") })
}

// testRenamed: a node of another name continues no move, whatever the claims say, until it has its name again. Its agent would write objects of other nodes.
func testRenamed(t *testing.T, each each, policy corev1.PersistentVolumeReclaimPolicy, node string) {
	for _, cancelled := range []bool{false, true} {
		each(t, policy, func(p *inSteps) {
			p.agents[node].node = "node-9"
			if cancelled {
				p.annotateClaim("data", api.AnnotationMoveTo, "")
				p.annotateClaim("wal", api.AnnotationMoveTo, "")
			}
			began := len(p.steps)
			p.rest()
			for _, s := range p.steps[began:] {
				if strings.HasPrefix(s, node+" ") && !strings.HasSuffix(s, string(discard)) { // one without a record, which is incomplete
					p.t.Errorf("the renamed node takes the step %q", s)
				}
			}
			p.agents[node].node = node
		}, func(p *inSteps, switched bool) {
			want := "node-2"
			if cancelled && !switched {
				want = "node-1"
			}
			p.expect(want)
		})
	}
}

// expectHeldBack expects that a move is complete, or waits and can be cancelled, or is handed over and waits for the target.
func (p *inSteps) expectHeldBack(problem string) {
	p.t.Helper()
	if p.on("data") == "node-2" && p.on("wal") == "node-2" {
		return
	}
	if p.handedOver() {
		for _, claim := range []string{"data", "wal"} {
			if got := p.states(claim); got != "node-1 moved, node-2 received" && got != "node-1 moved, node-2 ready" {
				p.t.Errorf("after the switch: %s", got)
			}
		}
		p.dead = map[string]bool{}
		p.rest()
		p.expect("node-2")
		return
	}
	if pv := p.pvs["pvc-uid-data"]; problem != "" && pv != nil && isParked(pv) && !strings.Contains(p.status("data").Message+p.status("wal").Message, problem) {
		p.t.Errorf("the statuses are %+v and %+v, want %q", p.status("data"), p.status("wal"), problem)
	}
	p.annotateClaim("data", api.AnnotationMoveTo, "")
	p.rest()
	p.expect("node-1")
}

func (p *inSteps) status(claim string) api.MoveStatus {
	s, _ := api.MoveStatusOf(p.claims[claim].Annotations)
	return s
}

func testDeletedClaims(t *testing.T, each each, policy corev1.PersistentVolumeReclaimPolicy) {
	each(t, policy, func(p *inSteps) {
		p.stopPod(false) // a claim goes after its pods
		p.deleteClaim("data")
		p.deleteClaim("wal")
		p.reconcile()
	}, func(p *inSteps, switched bool) {
		node := map[bool]string{false: "node-1", true: "node-2"}[switched]
		for _, claim := range []string{"data", "wal"} {
			pv, states := p.pvs["pvc-uid-"+claim], p.states(claim)
			if policy == corev1.PersistentVolumeReclaimDelete {
				if pv != nil || states != map[bool]string{true: "node-1 moved"}[switched] {
					p.t.Errorf("the deleted claim %s left %q and %v", claim, states, pv)
				}
				continue
			}
			if pv == nil || p.on(claim) != node || pv.Status.Phase != corev1.VolumeReleased || states != map[bool]string{false: "node-1 ready", true: "node-1 moved, node-2 ready"}[switched] {
				p.t.Errorf("the retained volume of %s is on %s, want %s (%s)", claim, p.on(claim), node, states)
			}
		}
	})
}

// testLostSource: without the source nothing is lost and nothing is decided; once the target knows of the switch, an admin who deletes the PersistentVolume
// lets it go on.
func testLostSource(t *testing.T, each each, policy corev1.PersistentVolumeReclaimPolicy) {
	each(t, policy, func(p *inSteps) { p.dead["node-1"] = true }, func(p *inSteps, _ bool) {
		for _, claim := range []string{"data", "wal"} {
			v := p.nodes["node-2"].vols["pvc-uid-"+claim]
			if v == nil {
				continue
			}
			if v.State == lvm.StateReady && p.pvs[v.Name] != nil && p.pvs[v.Name].Spec.CSI.VolumeHandle != v.ID.String() {
				delete(p.pvs, v.Name) // the admin
				p.annotateClaim(claim, api.AnnotationSelectedNode, "node-2")
				p.reconcile()
				p.rest()
				if p.on(claim) != "node-2" {
					p.t.Errorf("the target does not go on: %s", p.on(claim))
				}
			}
		}
		p.dead = map[string]bool{}
		p.stopPod(false)
		p.rest()
		p.expect("node-2")
	})
}

// TestFormerCopy: the source's volume goes when the user says so, or a pod has run on the target for the grace period.
func TestFormerCopy(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.annotateClaim("data", api.AnnotationMoveFinish, "node-1") // of an earlier move: it does not count
	p.rest()
	if p.states("data") != "node-1 moved, node-2 ready" {
		t.Fatal(p.states("data"))
	}
	p.annotateClaim("wal", api.AnnotationMoveFinish, "node-1")
	p.rest()
	if p.states("wal") != "node-2 ready" || p.states("data") != "node-1 moved, node-2 ready" {
		t.Errorf("after --finish: %s and %s", p.states("wal"), p.states("data"))
	}
	p.startPod()
	p.write()
	p.now = p.now.Add(59 * time.Minute)
	p.step()
	if p.states("data") != "node-1 moved, node-2 ready" {
		t.Error("the former copy is removed before the grace period")
	}
	p.now = p.now.Add(2 * time.Minute)
	p.step()
	if p.states("data") != "node-2 ready" {
		t.Errorf("after the grace period: %s", p.states("data"))
	}
}

// TestFormerCopyAndClocks: a wrong clock of a node is no proof that a pod has used the volume for the grace period.
func TestFormerCopyAndClocks(t *testing.T) {
	for name, wrong := range map[string]func(*inSteps){
		"the source's is set forward": func(p *inSteps) {
			p.now, p.ahead = p.now.Add(2*time.Hour), 2*time.Hour
		},
		"the target's was behind": func(p *inSteps) {
			pod := p.pods["db-0"]
			pod.CreationTimestamp = metav1.NewTime(p.now)
			pod.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(p.now.Add(-2 * time.Hour))
		},
		"the target's was behind, and the pod waited for the move": func(p *inSteps) {
			pod, long := p.pods["db-0"], metav1.NewTime(p.now.Add(-2*time.Hour))
			pod.CreationTimestamp, pod.Status.ContainerStatuses[0].State.Running.StartedAt = long, long
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, corev1.PersistentVolumeReclaimDelete)
			p.rest()
			p.startPod()
			wrong(p)
			p.step()
			if p.states("data") != "node-1 moved, node-2 ready" {
				t.Error("the former copy is removed before the grace period")
			}
			p.now = p.now.Add(61 * time.Minute)
			p.step()
			if p.states("data") != "node-2 ready" {
				t.Errorf("after the grace period: %s", p.states("data"))
			}
		})
	}
}

// alone takes the steps of one claim on these nodes until they wait.
func (p *inSteps) alone(claim string, nodes ...string) {
	p.t.Helper()
	for range 60 {
		for _, node := range nodes {
			if _, err := p.agents[node].one(p.t.Context(), unit{namespace: "ns", claim: claim, volume: "pvc-uid-" + claim}); err != nil {
				p.t.Fatal(err)
			}
			if err := p.check(); err != nil {
				p.t.Fatal(err)
			}
			p.reconcile()
		}
	}
}

// untilReceived takes steps until node-2 has said that it has complete copies of both claims' volumes.
func (p *inSteps) untilReceived() {
	p.t.Helper()
	received := func(name string) bool { return p.pvs[name] != nil && answered(p.pvs[name]).Received != "" }
	for range 200 {
		if received("pvc-uid-data") && received("pvc-uid-wal") {
			return
		}
		p.step()
	}
	p.t.Fatal("the copies are not complete")
}

// TestAdminUsesACopy: when the node with the volume is lost for good, an admin can use the other copy (docs/howto/move.md). Nothing removes one that is
// ready and has no record, with or without its claim, and also if the other node returns.
func TestAdminUsesACopy(t *testing.T) {
	for name, c := range map[string]struct {
		lost, uses string
		until      func(*inSteps)
		keep       bool // the record
		want       string
	}{
		"a former one":                  {"node-2", "node-1", (*inSteps).rest, false, "node-1 ready, node-2 ready"},
		"a former one, with its record": {"node-2", "node-1", (*inSteps).rest, true, "node-2 ready"},
		"one that was not handed over":  {"node-1", "node-2", (*inSteps).untilReceived, false, "node-1 moving, node-2 ready"},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, corev1.PersistentVolumeReclaimDelete)
			c.until(p)
			clear(p.acked) // from now on there may be two
			p.dead[c.lost] = true
			for _, v := range p.nodes[c.uses].vols {
				if v.State = lvm.StateReady; !c.keep {
					v.Record = ""
				}
			}
			if c.lost == "node-1" {
				p.rest()
			}
			for _, claim := range []string{"data", "wal"} {
				pv := p.pvs["pvc-uid-"+claim]
				p.deleteClaim(claim)
				delete(p.pvs, pv.Name)
				p.rest()
				if !c.keep { // it is adopted
					pv = pv.DeepCopy()
					pv.Annotations, pv.DeletionTimestamp, pv.Finalizers = nil, nil, nil
					pv.Spec.ClaimRef.UID, pv.Spec.PersistentVolumeReclaimPolicy = "later", corev1.PersistentVolumeReclaimRetain
					pv.Spec.CSI.VolumeHandle = p.nodes[c.uses].vols[pv.Name].ID.String()
					pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[:1]
					pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{c.uses}
					p.put(pv)
				}
			}
			clear(p.dead)
			p.rest()
			if got := p.states("data"); got != c.want {
				t.Errorf("%s; the steps were\n%s", got, strings.Join(p.steps, "\n"))
			}
		})
	}
}

// TestChangedMind: a target keeps a complete copy while the source may believe in it, although the claim's user cancels: they may ask again.
func TestChangedMind(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.untilReceived()
	p.annotateClaim("data", api.AnnotationMoveTo, "")
	p.alone("data", "node-2")
	p.annotateClaim("data", api.AnnotationMoveTo, "node-2")
	p.rest()
	p.expect("node-2")
}

// TestFormerCopyIsTheRecordOfTheSwitch: it stays until the other claims of its pod have moved, too.
func TestFormerCopyIsTheRecordOfTheSwitch(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.untilReceived()
	p.alone("data", "node-1", "node-2")
	p.annotateClaim("data", api.AnnotationMoveFinish, "node-1")
	p.alone("data", "node-1")
	if p.on("data") != "node-2" || p.states("data") != "node-1 moved, node-2 ready" || p.states("wal") != "node-1 moving, node-2 received" {
		t.Fatalf("data is on %s (%s), wal has %s", p.on("data"), p.states("data"), p.states("wal"))
	}
	p.annotateClaim("wal", api.AnnotationMoveTo, "") // too late: they move together
	p.rest()
	p.expect("node-2")
	if p.states("data") != "node-2 ready" {
		t.Error(p.states("data"))
	}
}

// TestThereAndBack: a volume returns to the node that it came from, once that has deleted its former copy.
func TestThereAndBack(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.rest()
	for _, claim := range []string{"data", "wal"} {
		p.annotateClaim(claim, api.AnnotationMoveTo, "node-1")
	}
	p.rest()
	if !strings.Contains(p.status("data").Message, "still has the copy") {
		t.Errorf("the former copies are in the way, and the status is %+v", p.status("data"))
	}
	for _, claim := range []string{"data", "wal"} {
		p.annotateClaim(claim, api.AnnotationMoveFinish, "node-1")
	}
	p.rest()
	p.expect("node-1")
	if p.states("data") != "node-1 ready, node-2 moved" {
		t.Error(p.states("data"))
	}
}

// TestRefusals: what keeps a move from beginning. Nothing is changed, and the status says why.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*inSteps)
	}{
		{"expansion pending", "an expansion is pending", func(p *inSteps) {
			p.claims["data"].Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
		}},
		{"class change pending", "a change of the claim's attributes class is pending", func(p *inSteps) {
			p.claims["data"].Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{}
		}},
		{"no such node", "the driver does not run on node \"node-9\"", func(p *inSteps) {
			p.annotateClaim("data", api.AnnotationMoveTo, "node-9")
			p.annotateClaim("wal", api.AnnotationMoveTo, "node-9")
		}},
		{"no node", "cannot be a node", func(p *inSteps) { p.annotateClaim("data", api.AnnotationMoveTo, "node 2") }},
		{"sibling not annotated", "the claims of a pod move together", func(p *inSteps) { p.annotateClaim("wal", api.AnnotationMoveTo, "") }},
		{"sibling for another node", "the claims of a pod move together", func(p *inSteps) { p.annotateClaim("wal", api.AnnotationMoveTo, "node-1") }},
		{"label", "has the label \"a\"", func(p *inSteps) { p.pvs["pvc-uid-data"].Labels = map[string]string{"a": "b"} }},
		{"annotation", "has the annotation \"a\"", func(p *inSteps) { p.pvs["pvc-uid-data"].Annotations["a"] = "b" }},
		{"cloned", "a clone of the claim is copied to another node", func(p *inSteps) { p.pvs["pvc-uid-data"].Annotations[api.AnnotationCloneOffer+"uid"] = "{}" }},
		{"finalizer", "has the finalizer \"a/b\"", func(p *inSteps) { p.pvs["pvc-uid-data"].Finalizers = []string{"a/b"} }},
		{"owner", "has an owner", func(p *inSteps) { p.pvs["pvc-uid-data"].OwnerReferences = []metav1.OwnerReference{{Name: "a"}} }},
		{"field", "fields that csi-provisioner does not set", func(p *inSteps) {
			p.pvs["pvc-uid-data"].Spec.CSI.ControllerExpandSecretRef = &corev1.SecretReference{Name: "a"}
		}},
		{"long field", "has too long fields", func(p *inSteps) { p.pvs["pvc-uid-data"].Spec.MountOptions = []string{strings.Repeat("a", MaxRecord)} }},
		{"not allowed there", "storage class fast allows no volume on node node-2", func(p *inSteps) {
			p.class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: api.TopologyKey, Values: []string{"node-1"}}}}}
		}},
		{"allowed by another label", "allows no volume on node node-2", func(p *inSteps) {
			p.class.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}}
		}},
		{"class deleted", "does not exist", func(p *inSteps) { p.class = nil }},
		{"class of another driver", "is not one of nodelvm.io", func(p *inSteps) { p.class.Provisioner = "other.io" }},
		{"ephemeral", "is deleted with its pod", func(p *inSteps) { p.own("data", "db-0") }},
		{"static", "was not created for this claim", func(p *inSteps) { p.rename("data", "by-hand") }},
		{"no claim's name", "\"a/b\", which cannot be a claim", func(p *inSteps) { p.annotateClaim("data", api.AnnotationMoveWith, "wal, a/b") }},
		{"read-only copy", "is a read-only copy", func(p *inSteps) { p.nodes["node-1"].vols["pvc-uid-data"].Access = lvm.AccessReadOnly }},
		{"selected node elsewhere", "names \"node-2\"", func(p *inSteps) { p.annotateClaim("data", api.AnnotationSelectedNode, "node-2") }},
		{"deleted", "is being deleted", func(p *inSteps) { now := metav1.Now(); p.pvs["pvc-uid-data"].DeletionTimestamp = &now }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := play(t, corev1.PersistentVolumeReclaimDelete)
			c.change(p)
			a := p.agents["node-1"]
			s, err := a.one(t.Context(), unit{namespace: "ns", claim: "data"})
			if err != nil || s.do != wait || !s.warn || !strings.Contains(s.why, c.want) {
				t.Errorf("step %+v, %v; want one that says %q", s, err, c.want)
			}
			if strings.HasPrefix(c.name, "sibling") || c.name == "no such node" {
				if got := p.status("data"); got.Phase != api.MoveWaiting || !strings.Contains(got.Message, c.want) {
					t.Errorf("the status is %+v", got)
				}
			}
			if strings.HasSuffix(c.name, " pending") { // the move begins when it is complete
				p.claims["data"].Status.AllocatedResourceStatuses, p.claims["data"].Status.ModifyVolumeStatus = nil, nil
				p.touch(p.claims["data"])
				p.rest()
				p.expect("node-2")
			}
		})
	}
}

// TestChangedBeforeTheMove: an admin changes a PersistentVolume after its move was noted, while the move of another claim cannot begin yet. What the record
// says is no longer true: the move begins again, and nothing that the admin wrote is lost.
func TestChangedBeforeTheMove(t *testing.T) {
	const policy, retain = corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain
	for _, to := range []string{"node-2", ""} { // "": the move is cancelled
		p := play(t, policy)
		p.claims["wal"].Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{}
		p.rest()
		pv := p.pvs["pvc-uid-data"]
		if p.nodes["node-1"].vols[pv.Name].Record == "" || isMarked(pv) {
			t.Fatalf("the move is not noted alone: %q", p.steps)
		}
		pv.Spec.PersistentVolumeReclaimPolicy, pv.Labels = retain, map[string]string{"backup": "yes"}
		p.touch(pv)
		p.claims["wal"].Status.ModifyVolumeStatus = nil
		p.annotateClaim("wal", api.AnnotationMoveTo, to)
		p.rest()
		if to != "" {
			if got := p.status("data"); !strings.Contains(got.Message, `has the label "backup"`) {
				t.Errorf("the status is %+v", got)
			}
		}
		if pv = p.pvs["pvc-uid-data"]; pv.Labels["backup"] == "" {
			t.Errorf("the label is lost: %q", p.steps)
		}
		pv.Labels = nil
		p.touch(pv)
		p.rest()
		p.expect(cmp.Or(to, "node-1"))
		if got := p.pvs["pvc-uid-data"].Spec.PersistentVolumeReclaimPolicy; got != retain {
			t.Errorf("moved to %q, the PersistentVolume has the reclaim policy %s: %q", to, got, p.steps)
		}
	}
	t.Run("each state", func(t *testing.T) {
		changed := false
		eachState(t, policy, func(p *inSteps) {
			pv := p.pvs["pvc-uid-data"]
			if changed = pv != nil && !isMarked(pv); changed {
				pv.Spec.PersistentVolumeReclaimPolicy = retain
				p.touch(pv)
			}
		}, func(p *inSteps, _ bool) {
			p.expect("node-2")
			if got := p.pvs["pvc-uid-data"].Spec.PersistentVolumeReclaimPolicy; changed != (got == retain) {
				p.t.Errorf("the PersistentVolume has the reclaim policy %s; changed: %v", got, changed)
			}
		})
	})
}

// own makes a claim that of a pod's ephemeral volume.
func (p *inSteps) own(claim, pod string) {
	yes := true
	p.claims[claim].OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, Controller: &yes}}
}

// rename gives a claim's volume another name, as an admin does who adopts a logical volume.
func (p *inSteps) rename(claim, name string) {
	pv, disks := p.pvs["pvc-uid-"+claim], p.nodes["node-1"]
	v := disks.vols[pv.Name]
	delete(p.pvs, pv.Name)
	delete(disks.vols, pv.Name)
	pv.Name, v.Name, v.ID.LV, p.claims[claim].Spec.VolumeName = name, name, name, name
	pv.Spec.CSI.VolumeHandle = v.ID.String()
	p.pvs[name], disks.vols[name] = pv, v
	delete(p.acked, "pvc-uid-"+claim)
}

// TestEphemeralSibling: a claim that is deleted with its pod does not move, and does not hold back or cancel the others.
func TestEphemeralSibling(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.provision("scratch", corev1.PersistentVolumeReclaimDelete)
	p.own("scratch", "db-0")
	p.pods["db-0"] = podOf("db-0", "data", "wal", "scratch")
	p.reconcile()
	p.startPod()
	p.rest()
	if !isParked(p.pvs["pvc-uid-data"]) || p.status("data").Phase != api.MoveStopping {
		t.Errorf("the move waits for a claim that is deleted with the pod: %+v", p.status("data"))
	}
	p.stopPod(false)
	p.deleteClaim("scratch")
	p.reconcile()
	p.rest()
	p.expect("node-2")
}

// TestPodsElsewhereProveNothing: the grace period of a former copy is that of a pod on the node of the PersistentVolume.
func TestPodsElsewhereProveNothing(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.rest()
	p.startPod()
	p.pods["db-0"].Spec.NodeName = "node-3"
	p.now = p.now.Add(2 * time.Hour)
	p.step()
	if p.states("data") != "node-1 moved, node-2 ready" {
		t.Errorf("a pod on a third node proved that node-2 has the volume: %s", p.states("data"))
	}
	p.pods["db-0"].Spec.NodeName = "node-2"
	p.step()
	p.step()
	if p.states("data") != "node-2 ready" {
		t.Errorf("a pod on node-2 did not: %s", p.states("data"))
	}
}

// TestAttributesClass: the PersistentVolume keeps its attributes class, and the claim gets back the current one, which it loses in between. If the user
// wants another one by then, the claim has none until that is applied.
func TestAttributesClass(t *testing.T) {
	for wanted, want := range map[string]string{"gold": "gold", "silver": ""} {
		p := play(t, corev1.PersistentVolumeReclaimDelete)
		gold, claim := "gold", p.claims["data"]
		p.pvs["pvc-uid-data"].Spec.VolumeAttributesClassName, claim.Spec.VolumeAttributesClassName, claim.Status.CurrentVolumeAttributesClassName = &gold, &gold, &gold
		for !p.handedOver() {
			p.step()
		}
		claim.Spec.VolumeAttributesClassName = &wanted
		p.rest()
		p.expect("node-2")
		if got := ptr.Deref(claim.Status.CurrentVolumeAttributesClassName, ""); got != want || ptr.Deref(p.pvs["pvc-uid-data"].Spec.VolumeAttributesClassName, "") != "gold" {
			t.Errorf("the claim wants %s and has %q, want %q", wanted, got, want)
		}
	}
}

// TestStaticVolume: no node may create a PersistentVolume that is not named after its claim.
func TestStaticVolume(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	pv := p.pvs["pvc-uid-data"]
	pv.Name = "by-hand"
	if r, err := newRecord(pv, p.claims["data"], "node-1", "node-2", nil); r != nil || err == nil || !strings.Contains(err.Error(), "was not created for this claim") {
		t.Errorf("newRecord: %v, %v", r, err)
	}
}

// TestForgedRecord: a target receives nothing of a PersistentVolume whose record does not agree with it, or whose claim does not ask for this node.
func TestForgedRecord(t *testing.T) {
	for name, forge := range map[string]func(*inSteps, *corev1.PersistentVolume, *Record){
		"another claim":  func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.Claim = "wal" },
		"another UID":    func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.UID = "uid-wal" },
		"another handle": func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.Handle = group + "2/pvc-uid-data" },
		"a Secret": func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) {
			r.StageSecret = &corev1.SecretReference{Name: "root"}
		},
		"mount options":       func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.MountOptions = []string{"dev"} },
		"another class":       func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.Class = "other" },
		"handed over already": func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.Confirmed = "hold 1" },
		"from the target":     func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.From = "node-2" },
		"to a third node":     func(_ *inSteps, _ *corev1.PersistentVolume, r *Record) { r.To = "node-3" },
		"another driver":      func(_ *inSteps, pv *corev1.PersistentVolume, _ *Record) { pv.Spec.CSI.Driver = "other.io" },
		"not parked": func(_ *inSteps, pv *corev1.PersistentVolume, _ *Record) {
			pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[:1]
		},
		"not bound": func(_ *inSteps, pv *corev1.PersistentVolume, _ *Record) { pv.Status.Phase = corev1.VolumeAvailable },
		"not asked for": func(p *inSteps, _ *corev1.PersistentVolume, _ *Record) {
			p.annotateClaim("data", api.AnnotationMoveTo, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, corev1.PersistentVolumeReclaimDelete)
			p.dead["node-2"] = true
			p.rest()
			pv := p.pvs["pvc-uid-data"]
			if _, ok := offered(pv); !ok {
				t.Fatalf("no offer: %v", pv.Annotations)
			}
			r := parseRecord(pv.Annotations[api.AnnotationMoveRecord])
			forge(p, pv, r)
			pv.Annotations[api.AnnotationMoveRecord] = r.text()
			for range 5 {
				if s, err := p.agents["node-2"].one(t.Context(), unit{namespace: "ns", claim: "data"}); s.do != wait || err != nil {
					t.Fatalf("step %+v, %v", s, err)
				}
			}
		})
	}
}

// TestMayPull: who may copy a volume.
func TestMayPull(t *testing.T) {
	const account = "system:serviceaccount:nodelvm-system:nodelvm"
	for name, c := range map[string]struct {
		change        func(*inSteps)
		account, node string
		key           string
		may           bool
	}{
		"the target":                {may: true},
		"another node":              {node: "node-3"},
		"the source":                {node: "node-1"},
		"a token of no node":        {node: "-"},
		"another account":           {account: "system:serviceaccount:ns:default"},
		"another process":           {key: "another key"},
		"no key":                    {key: "-"},
		"a cancelled move":          {change: func(p *inSteps) { p.annotateClaim("data", api.AnnotationMoveTo, "") }},
		"a move to another node":    {change: func(p *inSteps) { p.annotateClaim("data", api.AnnotationMoveTo, "node-3") }},
		"a deleted claim":           {change: func(p *inSteps) { delete(p.claims, "data") }},
		"a volume that is not held": {change: func(p *inSteps) { p.nodes["node-1"].vols["pvc-uid-data"].State = lvm.StateReady }},
		"a volume that is copied ahead": {change: func(p *inSteps) {
			v := p.nodes["node-1"].vols["pvc-uid-data"]
			v.State, v.Rounds = lvm.StateReady, []Round{{Move: "round"}}
		}, may: true},
		"a volume without a record":     {change: func(p *inSteps) { p.nodes["node-1"].vols["pvc-uid-data"].Record = "" }},
		"a PersistentVolume not parked": {change: func(p *inSteps) { delete(p.pvs, "pvc-uid-data") }},
		"an earlier volume of its name": {change: func(p *inSteps) { p.nodes["node-1"].vols["pvc-uid-data"].UUID = "another" }},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, corev1.PersistentVolumeReclaimDelete)
			for !slices.ContainsFunc(p.steps, func(s string) bool { return strings.Contains(s, string(receive)) }) {
				p.step()
			}
			a := p.agents["node-1"]
			user, node, key := cmp.Or(c.account, account), cmp.Or(c.node, "node-2"), cmp.Or(c.key, "key of node-2")
			a.review = func(context.Context, string) (string, string, error) { return user, strings.TrimPrefix(node, "-"), nil }
			l := p.nodes["node-1"].vols["pvc-uid-data"]
			id, uuid := l.ID, l.UUID
			if c.change != nil {
				c.change(p)
			}
			if err := a.MayPull(t.Context(), account, "token", strings.TrimPrefix(key, "-"), id, uuid); (err == nil) != c.may {
				t.Errorf("MayPull: %v", err)
			}
		})
	}
}
