package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"
)

//go:embed assets
var assets embed.FS

// maxStreams limits the number of open pages.
const maxStreams = 8

// Server serves the page.
type Server struct {
	URL string // to open in the browser, with the token

	collector *Collector
	hello     Hello
	listener  net.Listener
	http      http.Server
}

// Listen opens a port of the loopback address; with 0 the system chooses the port.
func Listen(ctx context.Context, port uint16, hello Hello, collector *Collector) (*Server, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("cannot open port %d for the dashboard: %w; choose another with --port", port, err)
	}
	s := &Server{collector: collector, hello: Hello{Cluster: text(hello.Cluster), Version: text(hello.Version)}, listener: listener}
	g := &guard{host: listener.Addr().String(), token: newToken(), session: newToken()}
	g.next = s.routes(g)
	s.URL = "http://" + g.host + "/#" + tokenField + "=" + g.token // a browser keeps what follows the # to itself
	s.http = http.Server{Handler: g, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	return s, nil
}

// Run serves until ctx is done.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.collector.Run(ctx)
	}()
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() }) // Serve returns the error
	defer stop()
	err := s.http.Serve(s.listener)
	cancel()
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func (s *Server) routes(g *guard) http.Handler {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		panic(err) // go build embeds the folder
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(files))
	mux.HandleFunc("/api/session", g.begin)
	mux.HandleFunc("/api/stream", g.data(s.stream))
	mux.HandleFunc("/api/events", g.data(s.events))
	return mux
}

// stream sends the whole model, and then its changes.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	watcher, ok := s.collector.state.watch()
	if !ok {
		http.Error(w, fmt.Sprintf("%d pages of this dashboard are open: close one", maxStreams), http.StatusTooManyRequests)
		return
	}
	defer s.collector.state.unwatch(watcher)
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(events ...event) bool {
		for _, e := range events {
			data, err := json.Marshal(e.data)
			if err != nil {
				return false
			}
			_ = out.SetWriteDeadline(time.Now().Add(time.Minute)) // a page that does not read loses its stream
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e.name, data); err != nil {
				return false
			}
		}
		return out.Flush() == nil
	}
	if !send(event{"reset", s.hello}) {
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case <-watcher.wake:
		}
		for more := true; more; {
			var events []event
			if events, more = s.collector.state.next(watcher); !send(events...) {
				return
			}
		}
	}
}

// events serves the events about one claim and its pods.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var omitted int
	pods := cut(q["pod"], maxMessages, &omitted)
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	list, err := s.collector.source.Events(ctx, q.Get("namespace"), q.Get("claim"), pods)
	if err != nil {
		http.Error(w, text(err.Error()), http.StatusBadGateway)
		return
	}
	answer := []Event{}
	for _, e := range cut(list, maxEvents, &omitted) {
		e.Type, e.Reason, e.Object, e.Message = text(e.Type), text(e.Reason), text(e.Object), text(e.Message)
		answer = append(answer, e)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the reader is gone
}

const maxEvents = 100
