package move

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Queue is why a copy waits although nothing is wrong: a node sends, and receives, a number of volumes at the same time.
type Queue struct {
	Sends  bool     `json:"-"` // the source is busy; else the target
	AtOnce int      `json:"atOnce"`
	Claims []string `json:"claims,omitempty"` // whose volumes are copied now, of the namespace of the claim that waits, at most maxNamed
	Others int      `json:"others,omitempty"` // how many more volumes
}

const (
	maxNamed   = 3       // claims in one message
	maxQueue   = 4 << 10 // bytes that a source may answer
	queuePause = 5 * time.Second
)

// newQueue is the queue behind the copies for these claims ("namespace/name...", or empty). It names those in the namespace of the one that waits: who
// reads a claim may not know those of other namespaces.
func newQueue(atOnce int, claim string, ahead []string) *Queue {
	q := &Queue{AtOnce: atOnce}
	namespace, _, _ := strings.Cut(claim, "/")
	for _, other := range slices.Sorted(slices.Values(ahead)) {
		parts := strings.Split(other, "/")
		if namespace != "" && len(parts) > 1 && parts[0] == namespace && len(q.Claims) < maxNamed {
			q.Claims = append(q.Claims, parts[1])
		} else {
			q.Others++
		}
	}
	return q
}

func (q *Queue) Error() string {
	who, ahead := "the target receives", []string{}
	if q.Sends {
		who = "the source sends"
	}
	for _, claim := range q.Claims[:min(maxNamed, len(q.Claims))] {
		ahead = append(ahead, fmt.Sprintf("claim %.253q", claim))
	}
	switch {
	case q.AtOnce <= 0: // it did not say
		return "waits for its turn: " + who + " other volumes"
	case q.Others > 0:
		ahead = append(ahead, fmt.Sprintf("%d more", q.Others))
	}
	return fmt.Sprintf("waits for its turn: %s %d volumes at a time, now %s", who, q.AtOnce, strings.Join(ahead, ", "))
}

// queue returns why a copy that could begin has to wait on this node; nil: it need not. The caller holds mu.
func (n *Node) queue(of *job) *Queue {
	var ahead []string
	for _, j := range n.copies {
		if j.running && (j.claim != "") == (of.claim != "") {
			ahead = append(ahead, j.volume.Claim)
		}
	}
	if len(ahead) < n.cfg.AtOnce {
		return nil
	}
	return newQueue(n.cfg.AtOnce, of.volume.Claim, ahead)
}

// refuseBusy answers a pull that has to wait.
func (s *server) refuseBusy(w http.ResponseWriter, r *http.Request, q query, atOnce int) {
	claims := map[string]string{} // by handle
	if q.claim == "" {
		volumes, err := s.engine.Moves(r.Context())
		if err != nil {
			s.log.Warn("cannot tell which volumes are sent", "error", err)
		}
		for _, v := range volumes {
			claims[v.ID.String()] = v.Claim
		}
	}
	claimOf := func(key pullKey) string {
		if key.claim != "" {
			return key.claim
		}
		return claims[key.id.String()]
	}
	var ahead []string
	s.mu.Lock()
	for key := range s.pulls {
		if (key.claim != "") == (q.claim != "") {
			ahead = append(ahead, claimOf(key))
		}
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	if err := json.NewEncoder(w).Encode(newQueue(atOnce, claimOf(pullKey{q.id, q.claim}), ahead)); err != nil {
		s.log.Debug("cannot tell a peer that it has to wait", "error", err)
	}
}

// busySource reads the answer of a source that sends other volumes.
func busySource(body io.Reader) *Queue {
	q := &Queue{}
	if json.NewDecoder(io.LimitReader(body, maxQueue)).Decode(q) != nil {
		q = &Queue{}
	}
	q.Sends = true
	return q
}
