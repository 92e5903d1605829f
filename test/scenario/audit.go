package scenario

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"
)

// asked is one kind of request that a container of the driver's pod sends to the API server.
type asked struct{ node, container, verb, resource string }

// request is what is read of a line of the audit log.
type request struct {
	Stage, Verb, UserAgent   string
	RequestReceivedTimestamp time.Time
	ObjectRef                struct{ Resource, Subresource string }
	User                     struct{ Extra map[string][]string }
}

// asked counts the requests that the drivers' pods have sent between two moments. A watch counts when it begins.
func (s *Stage) asked(from, to time.Time) (map[asked]int, error) {
	log, err := os.Open(s.Lab.AuditLog())
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // only read
	return countAsked(log, from, to)
}

func countAsked(log io.Reader, from, to time.Time) (map[asked]int, error) {
	counts := map[asked]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r request
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
		counts[asked{node, container, r.Verb, resource}]++
	}
	return counts, lines.Err()
}
