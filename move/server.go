package move

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Limits of what a peer can cost a source.
const (
	maxConnections = 16
	chunkTime      = time.Minute // for one chunk to pass, in either direction
	reauthorize    = time.Minute
	refusalPause   = 500 * time.Millisecond // between two refusals: each costs the API server a request
)

// held is the engine's part for a server.
type held interface {
	// SnapshotDevice and ReleaseSnapshot are host.Host's.
	SnapshotDevice(ctx context.Context, id lvm.ID, uuid string) (string, error)
	ReleaseSnapshot(ctx context.Context, id lvm.ID, uuid string) error
	// MoveDevice and Changes are host.Host's.
	MoveDevice(ctx context.Context, id lvm.ID, uuid, move string) (string, error)
	Changes(ctx context.Context, id lvm.ID, uuid, since, move string) (*lvm.Changes, error)
	Moves(ctx context.Context) ([]lvm.Volume, error)
}

// server sends volumes that are held for a move, and snapshots, to the nodes that may pull them.
type server struct {
	engine     held
	authorizer Authorizer
	limit      *limiter
	slots      chan struct{} // one for each pull at the same time
	snapshots  chan struct{} // the same for those of snapshots: no tenant's restores hold moves back
	sent       func(volume string)
	log        *slog.Logger

	changes  changesCache
	refusals sync.Mutex
	mu       sync.Mutex
	pulls    map[pullKey]*pull
}

// pullKey is what one pull at a time may read: several nodes can copy one snapshot.
type pullKey struct {
	id    lvm.ID
	claim string
}

// pull is one under way.
type pull struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// serve serves until ctx ends.
func (s *server) serve(ctx context.Context, listener net.Listener, key identity) error {
	httpServer := &http.Server{
		Handler: s, TLSConfig: key.serverTLS(), MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: withSocket,
		ErrorLog:  slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols: http1(),
	}
	stop := context.AfterFunc(ctx, func() { _ = httpServer.Close() })
	defer stop()
	err := httpServer.ServeTLS(&boundedListener{Listener: listener, free: make(chan struct{}, maxConnections)}, "", "")
	if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
		return nil
	}
	return err
}

// http1 excludes HTTP/2, whose frames and flow control a single stream does not need.
func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 { // net/http reads a body before it answers, for as long as the peer sends none
		_ = http.NewResponseController(w).SetReadDeadline(time.Now())
	}
	q, err := parseQuery(r.URL.Query())
	if err != nil || r.Method != http.MethodGet || r.URL.Path != path || r.ContentLength != 0 {
		http.Error(w, "no such request", http.StatusBadRequest)
		return
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	request := Request{Token: token, Key: peerKey(r.TLS), Volume: q.id, UUID: q.uuid, Claim: q.claim}
	if err := s.authorize(r.Context(), request); err != nil {
		s.log.Warn("refused to send a volume", "volume", q.id.String(), "peer", r.RemoteAddr, "error", err)
		http.Error(w, "not allowed", http.StatusForbidden)
		return
	}
	slots := s.slots
	if q.claim != "" {
		slots = s.snapshots
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		s.refuseBusy(w, r, q, cap(slots))
		return
	}
	ctx, ended, err := s.begin(r.Context(), pullKey{q.id, q.claim})
	if err == nil {
		defer ended()
		err = s.send(ctx, w, q, request)
	}
	if err == nil {
		if q.claim == "" {
			s.sent(q.id.LV)
		}
		return
	}
	s.log.Warn("cannot send a volume", "volume", q.id.String(), "peer", r.RemoteAddr, "error", err)
	if !errors.Is(err, errBegun) {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	panic(http.ErrAbortHandler) // the peer must not take the body for a whole one
}

// authorize refuses slowly, and one peer at a time.
func (s *server) authorize(ctx context.Context, r Request) error {
	if r.Token == "" || r.Key == "" {
		return lvm.Errorf(lvm.KindInvalid, "the peer has no token or no key")
	}
	s.refusals.Lock()
	defer s.refusals.Unlock()
	err := s.authorizer.MayPull(ctx, r)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-time.After(refusalPause):
		}
	}
	return err
}

// begin registers a pull: one of each volume, or of each snapshot for a claim, at a time.
func (s *server) begin(ctx context.Context, of pullKey) (_ context.Context, ended func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	p := &pull{cancel, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pulls[of] != nil {
		cancel()
		return nil, nil, lvm.Errorf(lvm.KindBusy, "volume %s is being sent already; retry", of.id)
	}
	if s.pulls == nil {
		s.pulls = map[pullKey]*pull{}
	}
	s.pulls[of] = p
	return ctx, func() {
		cancel()
		s.mu.Lock()
		delete(s.pulls, of)
		s.mu.Unlock()
		close(p.done)
	}, nil
}

// stop ends the pull of a volume, and waits until its device is closed.
func (s *server) stop(ctx context.Context, id lvm.ID) error {
	s.mu.Lock()
	p := s.pulls[pullKey{id: id}]
	s.mu.Unlock()
	if p == nil {
		return nil
	}
	p.cancel()
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return lvm.Errorf(lvm.KindBusy, "volume %s is still being sent; retry: %w", id, ctx.Err())
	}
}

// errBegun marks errors after the first byte of the body.
var errBegun = errors.New("the transfer broke off")

func (s *server) send(ctx context.Context, w http.ResponseWriter, q query, r Request) error {
	changes, err := s.changes.of(ctx, s.engine, q)
	if err != nil {
		return err
	}
	file, size, err := openVolume(func() (string, error) { return s.device(ctx, q) }, q.mode())
	if err != nil {
		return err
	}
	defer s.close(ctx, file, q)
	if chunks := q.unit().chunksOf(size); q.span.to > chunks {
		return lvm.Errorf(lvm.KindInvalid, "volume %s has %d chunks, and the request ends at %d", q.id, chunks, q.span.to)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set(sizeHeader, strconv.FormatInt(int64(size), 10))
	if changes != nil {
		w.Header().Set(changedHeader, strconv.FormatInt(int64(changes.Size()), 10))
	}
	w.WriteHeader(http.StatusOK)
	of, _ := ctx.Value(socketKey{}).(*socket)
	o := &outgoing{server: s, w: w, control: http.NewResponseController(w), socket: of, q: q, changes: changes, request: r, authorized: time.Now()}
	if err := o.sendChunks(ctx, file, size); err != nil {
		return errors.Join(errBegun, err)
	}
	return nil
}

// device returns the device of a held volume, or of a snapshot.
func (s *server) device(ctx context.Context, q query) (string, error) {
	if q.claim != "" {
		return s.engine.SnapshotDevice(ctx, q.id, q.uuid)
	}
	return s.engine.MoveDevice(ctx, q.id, q.uuid, q.move)
}

// close closes a device. That of a snapshot goes with the last pull that reads it.
func (s *server) close(ctx context.Context, file *os.File, q query) {
	_ = file.Close()
	if q.claim == "" {
		return
	}
	if err := s.engine.ReleaseSnapshot(context.WithoutCancel(ctx), q.id, q.uuid); err != nil {
		s.log.Warn("cannot deactivate a snapshot that was copied; the next copy, or the driver's next start, does it", "snapshot", q.id.String(), "error", err)
	}
}

// boundedListener accepts no more connections while maxConnections are open.
type boundedListener struct {
	net.Listener
	free chan struct{}
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.free <- struct{}{}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &boundedConn{socket: socket{Conn: c}, release: sync.OnceFunc(func() { <-l.free })}, nil
}

type boundedConn struct {
	socket
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
