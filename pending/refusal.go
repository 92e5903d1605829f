package pending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodelvm/nodelvm/api"
)

// reasonProvisioningFailed is the reason of csi-provisioner's event about a volume that was not created.
const reasonProvisioningFailed = "ProvisioningFailed"

// answerOfDriver precedes the code and the text of a gRPC error in csi-provisioner's events.
const answerOfDriver = "rpc error: code = "

// codeFull is the gRPC code with which the driver sends a claim back to the scheduler.
const codeFull = "ResourceExhausted"

// codeBusy is the gRPC code of what the driver cannot do yet, such as the use of a copy that is not complete.
const codeBusy = "Aborted"

// refusal is the last event that says why a claim's volume was not created.
type refusal struct {
	by   string // the driver or csi-provisioner, with its node if that is known
	code string // of gRPC; "": the driver was not asked
	text string
	when string // how often, and when last
}

// refusalOf returns csi-provisioner's last event about the claim; nil: there is none. Events last an hour.
func refusalOf(f Facts) *refusal {
	e := lastEvent(f.Events, func(e corev1.Event) bool { return e.Reason == reasonProvisioningFailed })
	if e == nil {
		return nil
	}
	r := &refusal{text: cutMessage(e.Message), when: timesAndAge(e, f.Now)}
	node := nodeOfWriter(f.Nodes, e.Source.Component)
	if _, answer, isAnswer := strings.Cut(e.Message, answerOfDriver); isAnswer {
		code, text, _ := strings.Cut(answer, " desc = ")
		r.code, r.text = code, cutMessage(text)
		r.by = ofNode(node, "driver")
		return r
	}
	r.by = ofNode(node, "csi-provisioner")
	if _, text, cut := strings.Cut(e.Message, "StorageClass "); cut {
		if _, text, cut = strings.Cut(text, ": "); cut {
			r.text = cutMessage(text)
		}
	}
	return r
}

func (r *refusal) cause(f Facts) Cause {
	did := "refused"
	switch r.code {
	case codeBusy:
		did = "put it off"
	case "DeadlineExceeded", "Unavailable", "Canceled": // of gRPC's client, not of the driver
		did = "did not answer csi-provisioner,"
	}
	c := Cause{Text: fmt.Sprintf("%s %s %s: %s", r.by, did, r.when, r.text)}
	switch r.code {
	case codeFull: // the nodes' obstacles say what to do
	case codeBusy:
		c.Fix = "wait: csi-provisioner repeats the request, at the latest after five minutes. If the reason stays, resolve that"
	case "InvalidArgument", "OutOfRange", "AlreadyExists":
		c.Fix = fmt.Sprintf("change what it names: delete claim %s, or StorageClass %s, and create it again", f.Claim.Name, classOf(f.Claim))
	default:
		c.Fix = "resolve that: csi-provisioner repeats the request, at the latest after five minutes"
	}
	return c
}

// warningCauses quote the driver's own warnings about the claim.
func warningCauses(f Facts) (causes []Cause) {
	for _, reason := range []string{api.ReasonPodVolumesOnDifferentNodes, api.ReasonInsufficientCapacityForPod, api.ReasonDuplicateVolumeHandle} {
		if e := lastEvent(f.Events, func(e corev1.Event) bool { return e.Reason == reason && e.Type == corev1.EventTypeWarning }); e != nil {
			causes = append(causes, Cause{Text: fmt.Sprintf("event %s, %s: %s", reason, age(e, f.Now), cutMessage(e.Message))})
		}
	}
	return causes
}

// ofNode returns "node-1's driver", or "the driver" if the node is unknown.
func ofNode(node, what string) string {
	if node == "" {
		return "the " + what
	}
	return node + "'s " + what
}

// nodeOfWriter returns the node of the csi-provisioner that wrote an event: its component is the driver's name, the name of its pod
// or host, and a UUID. "": its pod no longer exists.
func nodeOfWriter(nodes []Node, component string) string {
	host, ours := strings.CutPrefix(component, api.DriverName+"_")
	end := strings.LastIndex(host, "_")
	if !ours || end < 0 {
		return ""
	}
	host = host[:end]
	i := slices.IndexFunc(nodes, func(n Node) bool { return n.Pod == host || n.Node.Name == host })
	if i < 0 {
		return ""
	}
	return nodes[i].Node.Name
}

// lastEvent returns the last of the events that is wanted; nil: there is none.
func lastEvent(events []corev1.Event, wanted func(corev1.Event) bool) (last *corev1.Event) {
	for i, e := range events {
		if wanted(e) && (last == nil || EventTime(e).After(EventTime(*last))) {
			last = &events[i]
		}
	}
	return last
}

// EventTime returns when an event was last seen.
func EventTime(e corev1.Event) time.Time {
	series := time.Time{}
	if e.Series != nil {
		series = e.Series.LastObservedTime.Time
	}
	return cmp.Or(e.LastTimestamp.Time, series, e.EventTime.Time, e.CreationTimestamp.Time)
}

// timesAndAge returns "6 times, last 4 s ago", or "4 s ago".
func timesAndAge(e *corev1.Event, now time.Time) string {
	if count := max(e.Count, countOf(e.Series)); count > 1 {
		return fmt.Sprintf("%d times, last %s", count, age(e, now))
	}
	return age(e, now)
}

func countOf(series *corev1.EventSeries) int32 {
	if series == nil {
		return 0
	}
	return series.Count
}

// age returns how long ago an event was last seen.
func age(e *corev1.Event, now time.Time) string {
	switch d := max(0, now.Sub(EventTime(*e))); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	default:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	}
}

// messageBytes limits what an answer quotes of an event: whoever may create events in a namespace can write one of a megabyte.
const messageBytes = 1 << 10

func cutMessage(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > messageBytes {
		return strings.ToValidUTF8(text[:messageBytes], "") + "…"
	}
	return text
}

// Quote returns an event's message with its times and age, cut to a length that fits an answer.
func Quote(e *corev1.Event, now time.Time) string {
	return fmt.Sprintf("%s (%s)", cutMessage(e.Message), timesAndAge(e, now))
}
