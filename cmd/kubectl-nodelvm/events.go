package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodelvm/nodelvm/pending"
)

// subject is an object that events are about.
type subject struct {
	namespace string
	uid       types.UID
}

// Limits of one request for events. Whoever may create events in a namespace can write many, of up to a megabyte each.
const (
	eventsRead  = "100" // about one object
	eventsBytes = 1 << 20
)

// eventsOf reads the events about each object. It leaves out those of an object with more than eventsBytes.
func (c *cluster) eventsOf(ctx context.Context, about []subject) (map[types.UID][]corev1.Event, error) {
	lists := make([][]corev1.Event, len(about))
	asking, ctx := errgroup.WithContext(ctx)
	asking.SetLimit(pagesAtOnce)
	for i, s := range about {
		asking.Go(func() (err error) {
			lists[i], err = c.eventsAbout(ctx, s)
			return err
		})
	}
	err := asking.Wait()
	events := map[types.UID][]corev1.Event{}
	for i, s := range about {
		events[s.uid] = lists[i]
	}
	return events, err
}

func (c *cluster) eventsAbout(ctx context.Context, s subject) ([]corev1.Event, error) {
	body, err := c.api.Get().Namespace(s.namespace).Resource("events").Param("fieldSelector", "involvedObject.uid="+string(s.uid)).Param("limit", eventsRead).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // the reader has returned any error
	return readEvents(body)
}

// readEvents decodes a list of events; none if it is larger than eventsBytes.
func readEvents(body io.Reader) ([]corev1.Event, error) {
	text, err := io.ReadAll(io.LimitReader(body, eventsBytes+1))
	if err != nil || len(text) > eventsBytes {
		return nil, err
	}
	var list corev1.EventList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("cannot parse a list of events: %w", err)
	}
	return list.Items, nil
}

// lastWarningOf returns the last warning with one of the reasons whose message has the words; nil: there is none.
func lastWarningOf(events []corev1.Event, words string, reasons ...string) (last *corev1.Event) {
	for i, e := range events {
		for _, reason := range reasons {
			if e.Type == corev1.EventTypeWarning && e.Reason == reason && strings.Contains(e.Message, words) && (last == nil || pending.EventTime(e).After(pending.EventTime(*last))) {
				last = &events[i]
			}
		}
	}
	return last
}
