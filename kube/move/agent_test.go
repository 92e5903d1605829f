package move

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/kubetest"
	"github.com/nodelvm/nodelvm/lvm"
)

// TestObserve: only claims that may concern the node cost it requests.
func TestObserve(t *testing.T) {
	for name, c := range map[string]struct {
		to, selected, volume, finish string
		deleted, looks               bool
	}{
		"no move":                    {selected: "node-1", volume: "v"},
		"from this node":             {to: "node-2", selected: "node-1", volume: "v", looks: true},
		"to this node":               {to: "node-1", selected: "node-2", volume: "v", looks: true},
		"between other nodes":        {to: "node-3", selected: "node-2", volume: "v"},
		"perhaps from this node":     {to: "node-3", volume: "v", looks: true},
		"no volume":                  {to: "node-2", selected: "node-1"},
		"deleted":                    {to: "node-2", selected: "node-1", volume: "v", deleted: true},
		"this node's former copy":    {to: "node-2", selected: "node-2", volume: "v", finish: "node-1", looks: true},
		"another node's former copy": {to: "node-2", selected: "node-2", volume: "v", finish: "node-3"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Config{Node: "node-1"})
				defer a.queue.ShutDown()
				claim := &corev1.PersistentVolumeClaim{}
				claim.Namespace, claim.Name, claim.Spec.VolumeName = "ns", "data", c.volume
				claim.Annotations = map[string]string{api.AnnotationMoveTo: c.to, api.AnnotationSelectedNode: c.selected, api.AnnotationMoveFinish: c.finish}
				a.Observe(claim, c.deleted)
				time.Sleep(2 * lookTogether)
				if looks := a.queue.Len() == 1; looks != c.looks {
					t.Errorf("looks at the claim: %v", looks)
				}
			})
		})
	}
}

// TestRequestsArePaced: claims that change all the time leave the driver's other requests half of their rate.
func TestRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(corev1.PersistentVolumeReclaimDelete, "data")
		for _, a := range w.agents {
			a.queue.ShutDown()
		}
		o, requests := newPaced(objects{w}), 0
		w.before = func() error { requests++; return nil }
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		pv, claim := w.pvs["pvc-uid-data"], w.claims["data"]
		for err := error(nil); err == nil; {
			_, one := o.Claim(ctx, "ns", "data")
			_, two := o.Volume(ctx, pv.Name)
			_, three := o.Pods(ctx, "ns")
			_, four := o.Snapshots(ctx, "ns", "node-1", "handle")
			err = cmp.Or(one, two, three, four, o.PatchVolume(ctx, pv, nil, "", false), o.PatchClaim(ctx, claim, "", kubeclient.Patch{}), o.DeleteVolume(ctx, pv), o.CreateVolume(ctx, pv, false))
			if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
				err = nil
			}
		}
		if most := requestsBurst + 20*requestsPerSecond; requests > most || requests < most/2 {
			t.Errorf("%d requests in 20 s, want at most %d", requests, most)
		}
	})
}

// TestWaitingMoveIsReadRarely: a move waits for its pod as long as the user likes. What then happens is seen within lookLater.
func TestWaitingMoveIsReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(corev1.PersistentVolumeReclaimDelete, "data")
		requests := 0
		w.before = func() error { requests++; return nil }
		w.startPod()
		w.annotateClaim("data", api.AnnotationMoveTo, "node-2")
		w.live(t, "data")
		w.work(t, time.Minute)
		if !isParked(w.pvs["pvc-uid-data"]) {
			t.Fatal("the move did not begin")
		}
		requests = 0
		w.work(t, time.Hour)
		if requests > 5000 {
			t.Errorf("a move that waits for a pod costs %d requests an hour", requests)
		}
		w.stopPod(false)
		w.work(t, lookLater+time.Second)
		if v := w.nodes["node-1"].vols["pvc-uid-data"]; v.State == lvm.StateReady {
			t.Errorf("the volume is not held %s after its pod has ended", lookLater)
		}
	})
}

// TestEndedCopyIsSeenSoon: a copy that took long is handed over as soon after its end as a short one.
func TestEndedCopyIsSeenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := play(t, corev1.PersistentVolumeReclaimDelete)
		p.live(t, "data", "wal")
		work := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(lookSoon / 2) {
				for _, a := range p.agents {
					a.round(t.Context(), "ns")
					p.reconcile()
				}
			}
		}
		p.nodes["node-2"].busy = "it takes long"
		work(10 * time.Minute)
		p.nodes["node-2"].busy = ""
		for node, a := range p.agents {
			for a.queue.Len() > 0 {
				namespace, _ := a.queue.Get()
				a.queue.Done(namespace)
			}
			for _, claim := range []string{"data", "wal"} {
				u := unit{namespace: "ns", claim: claim}
				a.mu.Lock()
				slow := a.paces[u.key()].next.Sub(a.paces[u.key()].since)
				a.mu.Unlock()
				if slow < lookLater {
					t.Errorf("%s reads the move of %s often after ten minutes", node, claim)
				}
				a.CopyEnded("pvc-uid-" + claim)
				if again := a.early(u); again != 0 {
					t.Errorf("%s reads the move of %s in %s", node, claim, again)
				}
			}
			if a.queue.Len() != 1 {
				t.Errorf("%s does nothing at once", node)
			}
		}
		work(4 * time.Second)
		for _, claim := range []string{"data", "wal"} {
			if got := p.states(claim); got != "node-1 moved, node-2 ready" {
				t.Errorf("4 s after the end of its copy the volumes of %s are %s", claim, got)
			}
		}
	})
}

// TestStopping: the kubelet unmounts a volume after the end of its pod. The move goes on at once, and warns no user.
func TestStopping(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	for _, a := range p.agents {
		defer a.queue.ShutDown()
	}
	p.startPod()
	p.rest()
	u := unit{namespace: "ns", claim: "data", volume: "pvc-uid-data"}
	if p.status("data").Phase != api.MoveStopping {
		t.Errorf("%+v", p.status("data"))
	}
	delete(p.pods, "db-0") // its volumes are still mounted
	s, err := p.agents["node-1"].one(t.Context(), u)
	if err != nil || s.phase != api.MoveStopping || s.warn || !strings.Contains(s.why, "is open") {
		t.Errorf("%+v, %v", s, err)
	}
	if again := p.agents["node-1"].advance(t.Context(), u); again != lookSoon {
		t.Errorf("looks again in %s", again)
	}
	p.unstage()
	p.rest()
	p.expect("node-2")
}

// TestCancelledIsSaid: the end of a cancelled move is in the claim's status, however soon it comes.
func TestCancelledIsSaid(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.startPod()
	p.rest()
	p.annotateClaim("data", api.AnnotationMoveTo, "")
	p.annotateClaim("wal", api.AnnotationMoveTo, "")
	p.rest()
	p.expect("node-1")
	for _, claim := range []string{"data", "wal"} {
		if s := p.status(claim); s.Phase != api.MoveCancelled || !strings.Contains(s.Message, "stays on node node-1") {
			t.Errorf("the status of %s is %+v", claim, s)
		}
	}
}

// TestNextPhaseIsSaidAtOnce: the status of the claim is what the target's watch shows it. A phase that is reported late makes the move longer.
func TestNextPhaseIsSaidAtOnce(t *testing.T) {
	p := play(t, corev1.PersistentVolumeReclaimDelete)
	p.dead["node-2"] = true
	for p.step() {
		continue // the clock stands still
	}
	for _, claim := range []string{"data", "wal"} {
		if s := p.status(claim); s.Phase != api.MoveCopying || !strings.Contains(s.Message, "waits for node node-2") {
			t.Errorf("the status of %s is %+v", claim, s)
		}
	}
}

// TestRefusedClaimIsReadRarely: a tenant can annotate any number of claims with a move that cannot begin.
func TestRefusedClaimIsReadRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(corev1.PersistentVolumeReclaimDelete, "data", "wal") // wal does not ask for it
		requests := 0
		w.before = func() error { requests++; return nil }
		a := w.agents["node-1"]
		for _, a := range w.agents {
			defer a.queue.ShutDown()
		}
		a.now = time.Now
		w.annotateClaim("data", api.AnnotationMoveTo, "node-2")
		a.Observe(w.claims["data"], false)
		rounds := 0
		for range 360 { // an hour
			before := requests
			a.round(t.Context(), "ns")
			if requests > before {
				rounds++
			}
			time.Sleep(lookLater)
		}
		if rounds < 5 || rounds > 15 {
			t.Errorf("the claim was read in %d of 360 rounds", rounds)
		}
		a.Observe(w.claims["data"], false)
		before := requests
		a.round(t.Context(), "ns")
		if requests == before {
			t.Error("a change of the claim is not read")
		}
	})
}

// TestSlowRound: a move that a round had no time for is not forgotten: no claim need change before the next round.
func TestSlowRound(t *testing.T) {
	w := newWorld(corev1.PersistentVolumeReclaimDelete, "data")
	ctx, end := context.WithCancel(t.Context())
	w.before = func() error {
		end()
		return ctx.Err()
	}
	if again := w.agents["node-2"].advance(ctx, unit{namespace: "ns", claim: "data"}); again <= 0 {
		t.Error("the agent reads the claim only when it changes")
	}
}

// TestPodsAreReadInPart: of the pods that use claims the agent reads what it needs, and it fails if a pod that it cannot read may use one.
func TestPodsAreReadInPart(t *testing.T) {
	pod := func(name, volume string) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", CreationTimestamp: metav1.Unix(1600000000, 0), DeletionTimestamp: ptr.To(metav1.Unix(1700000000, 0))},
			Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{
				{Name: volume, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning,
				Conditions:        []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse}},
				ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1700000000, 0)}}}}},
		}
	}
	without, whole := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "without"}}, pod("web", "v")
	whole.Annotations, whole.Status.ContainerStatuses[0].Image, whole.Status.Conditions[0].Message = map[string]string{"long": strings.Repeat("x", 1<<20)}, "image", "message"
	got, err := server{kubetest.PodClient(t, without, whole)}.Pods(t.Context(), "ns")
	if want := pod("web", "v"); err != nil || len(got) != 1 || !apiequality.Semantic.DeepEqual(got[0], want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if got, err := (server{kubetest.PodClient(t, whole, pod("large", strings.Repeat("v", api.MaxObject)))}).Pods(t.Context(), "ns"); err == nil {
		t.Errorf("with a pod that is not read: %+v", got)
	}
}

// TestRefusalsAreForgotten: claims that could not move, and are deleted, take no memory. Nor do copies that never began.
func TestRefusalsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := func() error { return nil }
		a := New(Config{Engine: &disks{w: &world{before: done, after: done}}, Node: "node-1"})
		defer a.queue.ShutDown()
		a.refusals.Next("ns/db", a.now())
		time.Sleep(3 * lookRefused)
		a.lookAround(t.Context())
		if d := a.refusals.Get("ns/db"); d != 0 {
			t.Errorf("remembered: %s", d)
		}
		v := parkedView()
		for i := range 3 * maxReported {
			v.pv.Name = "pvc-" + strconv.Itoa(i)
			a.receive(t.Context(), v)
		}
		if n := len(a.progress); n > maxReported+1 {
			t.Errorf("%d copies are remembered", n)
		}
	})
}
