package claimevents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/cluster"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
	"github.com/nodelvm/nodelvm/kube/podlist"
	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/pending"
)

const (
	interval       = 10 * time.Second // Between two comparisons, which read from memory.
	patience       = 20 * time.Second // A claim that gets its volume sooner has no event.
	repeated       = 20 * time.Minute // The API server deletes an event after an hour.
	claimsAtOnce   = 20               // Claims that one round considers. The others follow in the next rounds.
	claimsKept     = 5000             // Claims whose last event is remembered.
	nodesReported  = 5
	podsConsidered = 5 // Of a claim.
)

// Reporter writes the events.
type Reporter struct {
	Client *kubeclient.Client
	Events *kubeclient.EventRecorder
	Log    *slog.Logger

	written    map[types.UID]writtenEvent // by claim or class
	rounds     int
	considered map[types.UID]int // by claim that waits: the last round that considered it
}

// writtenEvent is the last event about an object.
type writtenEvent struct {
	about   corev1.ObjectReference
	message string
	at      time.Time
}

// Run works until ctx ends. Objects.Run must run it.
func (r *Reporter) Run(ctx context.Context, objects *cluster.Objects) {
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, interval) {
		if s, known := stateOf(objects, time.Now()); known {
			if err := r.round(ctx, s); err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "cannot write an event about a claim that waits; will retry", "error", err)
			}
		}
	}
}

// round writes the events that are missing or out of date. It sends a bounded number of requests; the next rounds consider the claims
// that are left.
func (r *Reporter) round(ctx context.Context, s state) error {
	if r.written == nil || len(r.written) > claimsKept {
		r.written = map[types.UID]writtenEvent{}
	}
	for _, class := range s.classes {
		if unknown := lvm.UnknownParameter(class.Parameters); unknown != "" {
			if err := r.write(ctx, kubeclient.AboutClass(class), parameterMessage(unknown), s.now); err != nil {
				return err
			}
		}
	}
	waiting := waitingClaims(s)
	if err := r.resolve(ctx, s, waiting); err != nil {
		return err
	}
	r.rounds++
	r.considered = consideredOf(waiting, r.considered)
	others := &otherVolumes{client: r.Client, nodes: map[string]string{}}
	next := fairOrder(waiting, r.considered)[:min(len(waiting), claimsAtOnce)]
	pods := &podsOfClaims{claims: next, list: r.pods, listed: map[string][]corev1.Pod{}}
	var refusals error
	for _, claim := range next {
		if others.exhausted() {
			break
		}
		r.considered[claim.UID] = r.rounds
		switch err := r.consider(ctx, s, claim, pods, others); {
		case isRefusal(err):
			refusals = errors.Join(refusals, err)
		case err != nil:
			return err
		}
	}
	return refusals
}

// isRefusal reports whether the API server refused a request for what it is about, such as an event in a namespace that is being
// deleted: requests about other claims can succeed.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err)
}

// podsOfClaims has the pods of the claims that one round considers.
type podsOfClaims struct {
	claims []*corev1.PersistentVolumeClaim
	list   func(ctx context.Context, namespace string, claims map[string]bool) ([]corev1.Pod, error)
	listed map[string][]corev1.Pod // by namespace
}

// in returns the pods of one namespace.
func (p *podsOfClaims) in(ctx context.Context, namespace string) (pods []corev1.Pod, err error) {
	if pods, listed := p.listed[namespace]; listed {
		return pods, nil
	}
	names := map[string]bool{}
	for _, claim := range p.claims {
		if claim.Namespace == namespace {
			names[claim.Name] = true
		}
	}
	if pods, err = p.list(ctx, namespace, names); err == nil {
		p.listed[namespace] = pods
	}
	return pods, err
}

// consider writes the event of one claim.
func (r *Reporter) consider(ctx context.Context, s state, claim *corev1.PersistentVolumeClaim, waiting *podsOfClaims, others *otherVolumes) error {
	pods, err := waiting.in(ctx, claim.Namespace)
	if err != nil {
		return err
	}
	f := factsOf(s, claim, pods)
	if err := others.add(ctx, &f); err != nil {
		return err
	}
	message := messageOf(f)
	if message == "" {
		return nil
	}
	return r.write(ctx, kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), message, s.now)
}

// consideredOf returns the rounds of the claims that still wait.
func consideredOf(waiting []*corev1.PersistentVolumeClaim, considered map[types.UID]int) map[types.UID]int {
	kept := map[types.UID]int{}
	for _, claim := range waiting {
		if round, known := considered[claim.UID]; known {
			kept[claim.UID] = round
		}
	}
	return kept
}

// fairOrder orders the claims that wait, so that no namespace delays the events of another: a first claim of each namespace, then a
// second one, and so on. In a namespace, and among namespaces, those come first that a round considered longest ago, or never.
func fairOrder(waiting []*corev1.PersistentVolumeClaim, considered map[types.UID]int) []*corev1.PersistentVolumeClaim {
	ordered := slices.Clone(waiting)
	slices.SortStableFunc(ordered, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Compare(considered[a.UID], considered[b.UID])
	})
	last, rank, count := map[string]int{}, map[types.UID]int{}, map[string]int{}
	for _, claim := range ordered {
		last[claim.Namespace] = max(last[claim.Namespace], considered[claim.UID])
		rank[claim.UID] = count[claim.Namespace]
		count[claim.Namespace]++
	}
	slices.SortStableFunc(ordered, func(a, b *corev1.PersistentVolumeClaim) int {
		return cmp.Or(cmp.Compare(rank[a.UID], rank[b.UID]), cmp.Compare(last[a.Namespace], last[b.Namespace]))
	})
	return ordered
}

// waitingClaims returns the claims of the driver's classes that have waited longer than patience.
func waitingClaims(s state) (waiting []*corev1.PersistentVolumeClaim) {
	for _, claim := range s.claims {
		if classNamed(s.classes, kubeclient.ClassOf(claim)) != nil && s.now.Sub(claim.CreationTimestamp.Time) >= patience {
			waiting = append(waiting, claim)
		}
	}
	return waiting
}

// write writes the event, unless a recent one has this message.
func (r *Reporter) write(ctx context.Context, about corev1.ObjectReference, message string, now time.Time) error {
	if last := r.written[about.UID]; last.message == message && now.Sub(last.at) < repeated {
		return nil
	}
	err := r.Events.Record(ctx, kubeclient.Event{About: about, Kind: corev1.EventTypeWarning, Reason: api.ReasonWaitingForCapacity, Message: message})
	if err == nil {
		r.written[about.UID] = writtenEvent{about, message, now}
	}
	return err
}

// resolve forgets claims and classes that are no longer reported. The event of a claim that has its volume becomes one of type
// Normal; a deleted claim or class needs none. It reads at most claimsAtOnce claims, and leaves the others to the next rounds.
func (r *Reporter) resolve(ctx context.Context, s state, waiting []*corev1.PersistentVolumeClaim) error {
	reported := map[types.UID]bool{}
	for _, claim := range waiting {
		reported[claim.UID] = true
	}
	for _, class := range s.classes {
		reported[class.UID] = true
	}
	reads := 0
	for uid, last := range r.written {
		if reported[uid] {
			continue
		}
		if last.about.Kind == kubeclient.KindClaim {
			if reads++; reads > claimsAtOnce {
				continue
			}
			if err := r.resolveClaim(ctx, last); err != nil && !isRefusal(err) {
				return err
			}
		}
		delete(r.written, uid)
	}
	return nil
}

// resolveClaim changes the event of a claim to type Normal if the claim has its volume.
func (r *Reporter) resolveClaim(ctx context.Context, last writtenEvent) error {
	claim, err := r.Client.Claim(ctx, last.about.Namespace, last.about.Name)
	if err != nil || claim == nil || claim.UID != last.about.UID || claim.Spec.VolumeName == "" {
		return err
	}
	pv, err := r.Client.Volume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return err
	}
	message := "resolved: the claim has its volume"
	if node := pending.NodeOfClaim(claim, pv); node != "" {
		message += " on " + node
	}
	return r.Events.Record(ctx, kubeclient.Event{About: last.about, Kind: corev1.EventTypeNormal, Reason: api.ReasonWaitingForCapacity, Message: message})
}

// podFields are the fields of a Pod that pending.Explain reads (k8s.io/api/core/v1/generated.proto).
var podFields = podlist.Fields{
	1: {1: nil, 3: nil, 5: nil, 9: nil}, // metadata: name, namespace, uid, deletionTimestamp
	2: { // spec
		1: {1: nil, 2: {10: nil, 29: {}}},                   // volumes: name, persistentVolumeClaim, and the presence of ephemeral
		7: nil, 10: nil, 18: nil, 19: nil, 22: nil, 38: nil, // nodeSelector, nodeName, affinity, schedulerName, tolerations, schedulingGates
	},
	3: {1: nil, 2: nil}, // status: phase, conditions
}

// pods returns the pods of a namespace that wait with one of the claims, at most podsConsidered of each claim.
func (r *Reporter) pods(ctx context.Context, namespace string, claims map[string]bool) (pods []corev1.Pod, err error) {
	left := map[string]int{}
	for claim := range claims {
		left[claim] = podsConsidered
	}
	_, err = podlist.Each(ctx, r.Client.Core, namespace, fields.OneTermEqualSelector("status.phase", string(corev1.PodPending)), podFields, func(pod *corev1.Pod) {
		kept := false
		for _, name := range pending.ClaimNames(pod) {
			if left[name] > 0 {
				left[name]--
				kept = true
			}
		}
		if kept {
			pods = append(pods, *pod.DeepCopy())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of namespace %s: %w", namespace, err)
	}
	return pods, nil
}

func classNamed(classes []*storagev1.StorageClass, name string) *storagev1.StorageClass {
	i := slices.IndexFunc(classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return classes[i]
}

func parameterMessage(unknown string) string {
	return fmt.Sprintf("the parameter %q is unknown%s: no volume of the class can be created. Delete the class and create it again; its claims can stay.",
		unknown, lvm.DidYouMean(unknown))
}

// factsOf returns the facts about one claim. They lack the node of its data source; kubectl nodelvm why has it.
func factsOf(s state, claim *corev1.PersistentVolumeClaim, pods []corev1.Pod) pending.Facts {
	class := classNamed(s.classes, kubeclient.ClassOf(claim))
	f := pending.Facts{Claim: *claim, Class: class, Nodes: s.nodesFor(class.Name)}
	for _, pod := range pods {
		if slices.Contains(pending.ClaimNames(&pod), claim.Name) && len(f.Pods) < podsConsidered {
			f.Pods = append(f.Pods, pod)
		}
	}
	return f
}

// messageOf returns why a claim waits, or "" if it waits for its first pod, or a node has the capacity.
func messageOf(f pending.Facts) string {
	if unknown := lvm.UnknownParameter(f.Class.Parameters); unknown != "" {
		return "StorageClass " + f.Class.Name + ": " + parameterMessage(unknown)
	}
	if len(f.Pods) == 0 {
		return ""
	}
	a := pending.Explain(f)
	if slices.ContainsFunc(a.Nodes, func(n pending.NodeAnswer) bool { return len(n.Obstacles) == 0 }) {
		return ""
	}
	parts := []string{a.Causes[0].Text}
	for i, n := range a.Nodes {
		if i == nodesReported {
			parts = append(parts, fmt.Sprintf("and %d more nodes", len(a.Nodes)-i))
			break
		}
		parts = append(parts, n.Node+": "+strings.Join(n.Obstacles, ", "))
	}
	return strings.Join(parts, "; ") + ". More: kubectl nodelvm why " + f.Claim.Name + " -n " + f.Claim.Namespace
}
