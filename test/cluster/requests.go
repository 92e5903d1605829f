package cluster

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"
)

// APIRequest is one kind of request that a container of the driver's pod sends to the API server.
type APIRequest struct{ Node, Container, Verb, Resource string }

// auditEvent has the fields of a line of the audit log that countRequests reads.
type auditEvent struct {
	Stage, Verb, UserAgent   string
	RequestReceivedTimestamp time.Time
	ObjectRef                struct{ Resource, Subresource string }
	User                     struct{ Extra map[string][]string }
}

// APIRequests counts the requests that the driver's pods sent from one time until another. A watch counts when it starts.
func (c *Cluster) APIRequests(from, to time.Time) (map[APIRequest]int, error) {
	log, err := os.Open(c.Lab.AuditLog())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // only read
	return countRequests(log, from, to)
}

func countRequests(log io.Reader, from, to time.Time) (map[APIRequest]int, error) {
	counts := map[APIRequest]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r auditEvent
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		begins := r.Stage == "ResponseStarted"
		if at := r.RequestReceivedTimestamp; at.Before(from) || !at.Before(to) || begins != (r.Verb == "watch") {
			continue
		}
		node := strings.Join(r.User.Extra["authentication.kubernetes.io/node-name"], "")
		container, _, _ := strings.Cut(r.UserAgent, "/")
		resource := strings.TrimSuffix(r.ObjectRef.Resource+"/"+r.ObjectRef.Subresource, "/")
		counts[APIRequest{node, container, r.Verb, resource}]++
	}
	return counts, lines.Err()
}
