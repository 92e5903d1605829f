package main

import (
	"strings"
	"testing"
)

// TestEventsAreBounded: an object with more events than any answer quotes has none; the memory for them has a limit.
func TestEventsAreBounded(t *testing.T) {
	list := func(message string) string { return `{"items":[{"reason":"A","message":"` + message + `"}]}` }
	if events, err := readEvents(strings.NewReader(list("short"))); err != nil || len(events) != 1 || events[0].Message != "short" {
		t.Errorf("%v, %v", events, err)
	}
	if events, err := readEvents(strings.NewReader(list(strings.Repeat("x", eventsBytes)))); err != nil || len(events) != 0 {
		t.Errorf("%d events, %v", len(events), err)
	}
	if _, err := readEvents(strings.NewReader("{")); err == nil {
		t.Error("a broken list is accepted")
	}
}

// TestEventfulObjectsAreBounded: doctor reads the events of a limited number of objects.
func TestEventfulObjectsAreBounded(t *testing.T) {
	f, w := sound(), waitingShop()
	f.nodes, f.pods = w.nodes, w.pods
	for range 100 {
		f.claims = append(f.claims, w.claims[0], expandedClaim("20Gi"))
		f.pods = append(f.pods, unscheduled("data-db-0", "db-0"))
	}
	if n := len(f.eventful()); n != 4*claimsReported {
		t.Errorf("%d objects, want %d", n, 4*claimsReported)
	}
}
