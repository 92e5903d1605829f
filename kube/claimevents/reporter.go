package claimevents

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
	"github.com/nodelvm/nodelvm/kube/kubeclient"
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
	Client    *kubeclient.Client
	Namespace string // of the driver's CSIStorageCapacities
	Events    *kubeclient.EventRecorder
	Log       *slog.Logger

	written map[types.UID]report // by claim or class
	next    int                  // the waiting claim that the last round considered last
}

// report is the last event about an object.
type report struct {
	about   corev1.ObjectReference
	message string
	at      time.Time
}

// Run works until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	v := newView()
	var parts sync.WaitGroup
	defer parts.Wait()
	v.watch(ctx, r.Client, r.Namespace, &parts)
	for ; ctx.Err() == nil; kubeclient.Sleep(ctx, interval) {
		if s, known := v.state(time.Now()); known {
			if err := r.round(ctx, s); err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "cannot write an event about a claim that waits; will retry", "error", err)
			}
		}
	}
}

// round writes the events that are missing or out of date. It sends a bounded number of requests, and the next round continues
// after the claim at which it stopped.
func (r *Reporter) round(ctx context.Context, s state) error {
	if r.written == nil || len(r.written) > claimsKept {
		r.written = map[types.UID]report{}
	}
	for _, class := range s.classes {
		if unknown := api.UnknownParameter(class.Parameters); unknown != "" {
			if err := r.write(ctx, kubeclient.AboutClass(&class), parameterMessage(unknown), s.now); err != nil {
				return err
			}
		}
	}
	waiting := waitingClaims(s)
	if err := r.resolve(ctx, s, waiting); err != nil {
		return err
	}
	podsOf := map[string][]corev1.Pod{} // by namespace
	for range min(len(waiting), claimsAtOnce) {
		r.next = (r.next + 1) % len(waiting)
		claim := waiting[r.next]
		if _, listed := podsOf[claim.Namespace]; !listed {
			pods, err := r.pods(ctx, claim.Namespace)
			if err != nil {
				return err
			}
			podsOf[claim.Namespace] = pods
		}
		f := factsOf(s, claim, podsOf[claim.Namespace])
		if err := r.addOtherVolumes(ctx, &f); err != nil {
			return err
		}
		message := messageOf(f)
		if message == "" {
			continue
		}
		if err := r.write(ctx, kubeclient.AboutClaim(claim.Namespace, claim.Name, claim.UID), message, s.now); err != nil {
			return err
		}
	}
	return nil
}

// waitingClaims returns the claims of the driver's classes that have waited longer than patience.
func waitingClaims(s state) (waiting []corev1.PersistentVolumeClaim) {
	for _, claim := range s.claims {
		if classNamed(s.classes, kubeclient.ClassOf(&claim)) != nil && s.now.Sub(claim.CreationTimestamp.Time) >= patience {
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
		r.written[about.UID] = report{about, message, now}
	}
	return err
}

// resolve forgets claims and classes that are no longer reported. The event of a claim that has its volume becomes one of type
// Normal; a deleted claim or class needs none.
func (r *Reporter) resolve(ctx context.Context, s state, waiting []corev1.PersistentVolumeClaim) error {
	for uid, last := range r.written {
		waits := slices.ContainsFunc(waiting, func(c corev1.PersistentVolumeClaim) bool { return c.UID == uid })
		if waits || slices.ContainsFunc(s.classes, func(c storagev1.StorageClass) bool { return c.UID == uid }) {
			continue
		}
		if last.about.Kind == kubeclient.KindClaim {
			claim, err := r.Client.Claim(ctx, last.about.Namespace, last.about.Name)
			if err != nil {
				return err
			}
			if claim != nil && claim.UID == uid && claim.Spec.VolumeName != "" {
				about := kubeclient.Event{About: last.about, Kind: corev1.EventTypeNormal, Reason: api.ReasonWaitingForCapacity, Message: "resolved: " + last.message}
				if err := r.Events.Record(ctx, about); kubeclient.UnlessNotFound(err) != nil { // its namespace may be gone
					return err
				}
			}
		}
		delete(r.written, uid)
	}
	return nil
}

// addOtherVolumes adds the nodes of the other volumes of the claim's pods: this volume must be on the same node.
func (r *Reporter) addOtherVolumes(ctx context.Context, f *pending.Facts) error {
	f.OtherVolumes = map[string]string{}
	for _, pod := range f.Pods {
		for _, name := range pending.ClaimNames(&pod) {
			if _, known := f.OtherVolumes[name]; known || name == f.Claim.Name {
				continue
			}
			claim, err := r.Client.Claim(ctx, pod.Namespace, name)
			if err != nil {
				return err
			}
			if claim == nil || claim.Spec.VolumeName == "" {
				continue
			}
			pv, err := r.Client.Volume(ctx, claim.Spec.VolumeName)
			if err != nil {
				return err
			}
			if pv != nil && kubeclient.NodeOf(pv) != "" {
				f.OtherVolumes[name] = kubeclient.NodeOf(pv)
			}
		}
	}
	return nil
}

func (r *Reporter) pods(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := r.Client.Core.Get().Namespace(namespace).Resource("pods").Param("fieldSelector", "status.phase=Pending").Do(ctx).Into(&list)
	if err != nil {
		return nil, fmt.Errorf("cannot list the pods of namespace %s: %w", namespace, err)
	}
	return list.Items, nil
}

func classNamed(classes []storagev1.StorageClass, name string) *storagev1.StorageClass {
	i := slices.IndexFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &classes[i]
}

func parameterMessage(unknown string) string {
	return fmt.Sprintf("the parameter %q is unknown%s: no volume of the class can be created. Delete the class and create it again; its claims can stay.",
		unknown, api.DidYouMean(unknown))
}

// factsOf returns the facts about one claim. They lack the node of its data source; kubectl nodelvm why has it.
func factsOf(s state, claim corev1.PersistentVolumeClaim, pods []corev1.Pod) pending.Facts {
	class := classNamed(s.classes, kubeclient.ClassOf(&claim))
	f := pending.Facts{Claim: claim, Class: class, Nodes: s.nodesFor(class.Name)}
	for _, pod := range pods {
		if slices.Contains(pending.ClaimNames(&pod), claim.Name) && len(f.Pods) < podsConsidered {
			f.Pods = append(f.Pods, pod)
		}
	}
	return f
}

// messageOf returns why a claim waits, or "" if it waits for its first pod, or a node has the capacity.
func messageOf(f pending.Facts) string {
	if unknown := api.UnknownParameter(f.Class.Parameters); unknown != "" {
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
