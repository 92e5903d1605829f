package kubeclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/api"
)

// Event is an event to write. Each object and reason has one event, which a repeated report updates.
type Event struct {
	About   corev1.ObjectReference
	Kind    string // corev1.EventTypeNormal or EventTypeWarning
	Reason  string // in CamelCase
	Message string
}

func AboutClass(class *storagev1.StorageClass) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: storagev1.SchemeGroupVersion.String(), Kind: KindClass,
		Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion,
	}
}

func AboutClaim(namespace, name string, uid types.UID) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: KindClaim,
		Namespace: namespace, Name: name, UID: uid,
	}
}

// AboutNode refers to a node as the kubelet does, with its name as UID: kubectl describe selects events by it.
func AboutNode(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: name, UID: types.UID(name)}
}

// EventRecorder writes events, and counts repeated ones.
type EventRecorder struct {
	Client *Client
	Node   string

	mu     sync.Mutex
	Counts map[string]EventCount // by the event's namespace/name
}

// EventCount is the count of an event and the time of the last one.
type EventCount struct {
	Times int32
	Last  time.Time
}

// timesKept bounds the recorder's memory; for a dropped event, counting restarts at 1.
const timesKept = 1000

// Object builds the event's object. Its name depends only on object and reason, so that reports from several nodes share one event.
func (r *EventRecorder) Object(n Event, now time.Time) *corev1.Event {
	namespace := n.About.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // the API server requires it for events on objects without a namespace
	}
	name := n.About.Name
	if len(name) > 200 { // a name, with the hash, may have 253 bytes
		name = strings.TrimRight(name[:200], "-.") // the character before a dot must be a letter or a digit
	}
	hash := sha256.Sum256([]byte(string(n.About.UID) + n.Reason))
	when := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:8])},
		InvolvedObject:      n.About,
		Type:                n.Kind,
		Reason:              n.Reason,
		Message:             fitting(n.Message),
		Source:              corev1.EventSource{Component: api.DriverName, Host: r.Node},
		ReportingController: api.DriverName,
		ReportingInstance:   r.Node,
		FirstTimestamp:      when,
		LastTimestamp:       when,
		Count:               1,
	}
}

// messageMax is the maximum length of an event's message in bytes.
const messageMax = 1024

// fitting makes a message valid for an event: names and errors in it come from others.
func fitting(message string) string {
	const more = "..."
	message = strings.Map(printable, strings.ToValidUTF8(message, "?"))
	if len(message) <= messageMax {
		return message
	}
	end := messageMax - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}

// printable replaces control characters, with which a message could change a terminal.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}

// eventStands is how long RecordOnce assumes that an event still exists. The API server deletes an event after an hour, while its
// condition may last longer.
const eventStands = 20 * time.Minute

// RecordOnce writes the event unless it exists: several nodes observe the same thing, and one event is enough.
func (r *EventRecorder) RecordOnce(ctx context.Context, n Event) error {
	event := r.Object(n, time.Now())
	name := event.Namespace + "/" + event.Name
	r.mu.Lock()
	stands := time.Since(r.Counts[name].Last) < eventStands
	r.mu.Unlock()
	if stands {
		return nil
	}
	if err := r.post(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	r.count(name)
	return nil
}

// Record writes the event, or updates it if it exists.
func (r *EventRecorder) Record(ctx context.Context, n Event) error {
	event := r.Object(n, time.Now())
	times := r.count(event.Namespace + "/" + event.Name)
	if times == 1 {
		err := r.post(ctx, event)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		times = r.count(event.Namespace + "/" + event.Name) // an earlier run of this driver wrote it
	}
	patch, err := json.Marshal(map[string]any{
		"type": n.Kind, "message": event.Message, "count": times, "lastTimestamp": event.LastTimestamp,
		"source": event.Source, "reportingInstance": event.ReportingInstance,
	})
	if err != nil {
		return err
	}
	err = r.Client.Core.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return err
	}
	// The API server has deleted the event.
	return r.post(ctx, event)
}

// Now returns the API server's time: the creation time of an event about the node, which it does not store.
func (c *Client) Now(ctx context.Context, node string) (time.Time, error) {
	var event corev1.Event
	body := (&EventRecorder{Node: node}).Object(Event{About: AboutNode(node), Kind: corev1.EventTypeNormal}, time.Now())
	options := &metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	err := c.Core.Post().Namespace(body.Namespace).Resource("events").VersionedParams(options, metav1.ParameterCodec).Body(body).Do(ctx).Into(&event)
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot read the API server's time: %w", err)
	}
	return event.CreationTimestamp.Time, nil
}

func (r *EventRecorder) post(ctx context.Context, event *corev1.Event) error {
	return r.Client.Core.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}

func (r *EventRecorder) count(name string) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.Counts) > timesKept {
		clear(r.Counts)
	}
	r.Counts[name] = EventCount{r.Counts[name].Times + 1, time.Now()}
	return r.Counts[name].Times
}
