package dashboard

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
	"github.com/nodelvm/nodelvm/report"
)

// fakeSource has one node, and counts reads of its page.
type fakeSource struct {
	mu    sync.Mutex
	reads int
	err   error
}

func (f *fakeSource) Nodes(context.Context) ([]string, error) { return []string{"node-1"}, nil }
func (f *fakeSource) Objects(context.Context) Objects         { return Objects{} }
func (f *fakeSource) Events(context.Context, string, string, []string) ([]Event, error) {
	return nil, errors.New(strings.Repeat("<b>", 10000))
}

func (f *fakeSource) Page(context.Context, string) (report.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return report.Node{Version: "v1"}, f.err
}

// TestDashboardBackOff: the collector reads a node that does not answer less and less often, and keeps its last answer.
func TestDashboardBackOff(t *testing.T) {
	source := &fakeSource{}
	c := NewCollector(source, 10*time.Second)
	clock := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	c.now = func() time.Time { return clock }
	c.round(t.Context())
	source.err = errors.New("no answer")
	for range 360 { // an hour
		clock = clock.Add(10 * time.Second)
		c.round(t.Context())
	}
	if source.reads < 10 || source.reads > 25 {
		t.Errorf("the node was read %d times in an hour", source.reads)
	}
	if node := string(c.state.nodes["node-1"]); !strings.Contains(node, `"stale":true`) || !strings.Contains(node, "no answer") || !strings.Contains(node, `"v1"`) {
		t.Errorf("node %s", node)
	}
	source.err = nil
	clock = clock.Add(backOffLimit)
	c.round(t.Context())
	if node := string(c.state.nodes["node-1"]); strings.Contains(node, "stale") || strings.Contains(node, "no answer") {
		t.Errorf("node %s after it answered again", node)
	}
}

// TestDashboardIdle: no page is open at first; a page gets only what changed; the number of pages is limited.
func TestDashboardIdle(t *testing.T) {
	source := &fakeSource{}
	c := NewCollector(source, time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	defer func() { cancel(); <-done }()

	select {
	case <-c.state.watched():
		t.Error("a page is open")
	default:
	}
	w, ok := c.state.watch()
	if !ok {
		t.Fatal("no page may be opened")
	}
	nodes := 0
	for rounds := 0; rounds < 5; {
		<-w.wake
		events, _ := c.state.next(w)
		for _, e := range events {
			switch e.name {
			case "nodes":
				nodes++
			case "status":
				rounds++
			}
		}
	}
	if nodes != 1 {
		t.Errorf("the page got a node that did not change %d times", nodes)
	}
	for range maxStreams - 1 {
		if _, ok := c.state.watch(); !ok {
			t.Fatalf("fewer than %d pages may be open", maxStreams)
		}
	}
	if _, ok := c.state.watch(); ok {
		t.Errorf("more than %d pages may be open", maxStreams)
	}
}

// visit requests a URL; the answer is open until the test ends.
func visit(t *testing.T, client *http.Client, url string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	reply, err := client.Do(request)
	must(t, err)
	t.Cleanup(func() { _ = reply.Body.Close() })
	return reply
}

// TestDashboardServer: the server listens only on the loopback address, and serves data only with the session.
func TestDashboardServer(t *testing.T) {
	server, err := Listen(t.Context(), 0, Hello{Cluster: "c"}, NewCollector(&fakeSource{}, time.Second))
	must(t, err)
	if address := server.listener.Addr().String(); !strings.HasPrefix(address, "127.0.0.1:") {
		t.Errorf("the server listens on %s", address)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	origin, token, _ := strings.Cut(server.URL, "/#token=")
	get := func(url string) *http.Response { return visit(t, http.DefaultClient, url) }
	for _, path := range []string{"/api/stream", "/api/events?claim=a&namespace=b", "/api/session"} {
		if got := get(origin + path).StatusCode; got != http.StatusForbidden {
			t.Errorf("%s without a session: status %d", path, got)
		}
	}
	session, err := io.ReadAll(get(origin + "/api/session?token=" + token).Body)
	must(t, err)
	for _, path := range []string{"/", "/app.js", "/style.css", "/icon.svg"} { // public
		if got := get(origin + path).StatusCode; got != http.StatusOK {
			t.Errorf("%s: status %d", path, got)
		}
	}
	if reply := get(origin + "/api/events?claim=a&namespace=b&session=" + string(session)); reply.StatusCode != http.StatusBadGateway || reply.ContentLength > 2*maxText {
		t.Errorf("an error of the cluster: status %d with %d bytes", reply.StatusCode, reply.ContentLength)
	}
	lines := bufio.NewScanner(get(origin + "/api/stream?session=" + string(session)).Body)
	for _, want := range []string{"event: reset", "event: nodes"} {
		for lines.Scan() && lines.Text() != want {
		}
		if lines.Text() != want {
			t.Errorf("the stream ended before %q: %v", want, lines.Err())
		}
	}
}

// TestDashboardFirstRound: the status has no time before the first round is complete.
func TestDashboardFirstRound(t *testing.T) {
	c := NewCollector(&fakeSource{}, time.Second)
	c.publish(Status{Known: 1}) // as round does before it reads
	if status := string(c.state.status); strings.Contains(status, `"time"`) {
		t.Errorf("status %s of the first round has a time", status)
	}
	c.round(t.Context())
	if status := string(c.state.status); !strings.Contains(status, `"time"`) {
		t.Errorf("status %s of a complete round has no time", status)
	}
}

var must = check.Must
