package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// news is one thing to be told of an object. There is one event for each object and reason; what is told again under the
// same reason renews it.
type news struct {
	about   corev1.ObjectReference
	kind    string // corev1.EventTypeNormal or EventTypeWarning
	reason  string // a word in CamelCase
	message string
}

func aboutClass(class *storagev1.StorageClass) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass",
		Name: class.Name, UID: class.UID, ResourceVersion: class.ResourceVersion,
	}
}

func aboutClaim(namespace, name string, uid types.UID) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: corev1.SchemeGroupVersion.String(), Kind: "PersistentVolumeClaim",
		Namespace: namespace, Name: name, UID: uid,
	}
}

// aboutNode refers to a node as the kubelet does: by its name for a UID, which is where kubectl describe looks.
func aboutNode(name string) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: name, UID: types.UID(name)}
}

// teller writes events.
type teller struct {
	client *Client
	node   string

	mu   sync.Mutex
	told map[string]telling // by the event's namespace/name
}

// telling is how often an event was written, and when the last time was.
type telling struct {
	times int32
	last  time.Time
}

// timesKept bounds the teller's memory; what is forgotten is counted anew.
const timesKept = 1000

// event makes the event. Its name follows from the object and the reason, so that what several nodes tell is one event.
func (t *teller) event(n news, now time.Time) *corev1.Event {
	namespace := n.about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where the API server demands events on objects without a namespace
	}
	name := n.about.Name
	if len(name) > 200 { // a name may have 253 bytes, the hash included
		name = strings.TrimRight(name[:200], "-.") // before a dot there is a letter or a digit
	}
	hash := sha256.Sum256([]byte(string(n.about.UID) + n.reason))
	when := metav1.NewTime(now)
	return &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(hash[:8])},
		InvolvedObject:      n.about,
		Type:                n.kind,
		Reason:              n.reason,
		Message:             fitting(n.message),
		Source:              corev1.EventSource{Component: DriverName, Host: t.node},
		ReportingController: DriverName,
		ReportingInstance:   t.node,
		FirstTimestamp:      when,
		LastTimestamp:       when,
		Count:               1,
	}
}

// messageMax is how many bytes the message of an event may have.
const messageMax = 1024

// fitting is a message as an event may hold it: names and errors in it are others'.
func fitting(message string) string {
	const more = "..."
	message = strings.ToValidUTF8(message, "?")
	if len(message) <= messageMax {
		return message
	}
	end := messageMax - len(more)
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + more
}

// eventStands is for how long an event is taken to be there. The API server forgets it after an hour; what it tells of may
// last longer.
const eventStands = 20 * time.Minute

// once writes the event unless it is there: what every node sees is told by one.
func (t *teller) once(ctx context.Context, n news) error {
	event := t.event(n, time.Now())
	name := event.Namespace + "/" + event.Name
	t.mu.Lock()
	stands := time.Since(t.told[name].last) < eventStands
	t.mu.Unlock()
	if stands {
		return nil
	}
	if err := t.post(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	t.count(name)
	return nil
}

// tell writes the event, or renews it if it is there.
func (t *teller) tell(ctx context.Context, n news) error {
	event := t.event(n, time.Now())
	times := t.count(event.Namespace + "/" + event.Name)
	if times == 1 {
		err := t.post(ctx, event)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		times = t.count(event.Namespace + "/" + event.Name) // an earlier run of this driver has written it
	}
	patch, err := json.Marshal(map[string]any{
		"type": n.kind, "message": event.Message, "count": times, "lastTimestamp": event.LastTimestamp,
		"source": event.Source, "reportingInstance": event.ReportingInstance,
	})
	if err != nil {
		return err
	}
	err = t.client.core.Patch(types.MergePatchType).Namespace(event.Namespace).Resource("events").Name(event.Name).Body(patch).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return err
	}
	// The API server forgets events after an hour.
	return t.post(ctx, event)
}

func (t *teller) post(ctx context.Context, event *corev1.Event) error {
	return t.client.core.Post().Namespace(event.Namespace).Resource("events").Body(event).Do(ctx).Error()
}

func (t *teller) count(name string) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.told) > timesKept {
		clear(t.told)
	}
	t.told[name] = telling{t.told[name].times + 1, time.Now()}
	return t.told[name].times
}
