package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
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
}

// server sends volumes that are held for a move, and snapshots, to the nodes that may pull them.
type server struct {
	engine     held
	authorizer Authorizer
	limit      *limiter
	slots      chan struct{} // one for each pull at the same time
	snapshots  chan struct{} // the same for those of snapshots: no tenant's restores hold moves back
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
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		Protocols:   http1(),
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

// query is what a request asks for.
type query struct {
	id     lvm.ID
	uuid   string
	move   string
	claim  string // Request.Claim
	since  string // only what changed since this round; "": everything
	span   span   // in chunks of unit
	hashes bool
}

func (q query) unit() unit {
	if q.since != "" {
		return deltaSize
	}
	return chunkSize
}

// path is that of all requests; it names the version of the protocol.
const path = "/v1/volume"

func (q query) values() url.Values {
	v := url.Values{"volume": {q.id.String()}, "uuid": {q.uuid}, "move": {q.move}, "from": {strconv.FormatInt(q.span.from, 10)}, "to": {strconv.FormatInt(q.span.to, 10)}}
	if q.hashes {
		v.Set("hashes", "1")
	}
	if q.claim != "" {
		v.Set("claim", q.claim)
	}
	if q.since != "" {
		v.Set("since", q.since)
	}
	return v
}

func parseQuery(v url.Values) (q query, err error) {
	if q.id, err = lvm.ParseID(v.Get("volume")); err != nil {
		return q, err
	}
	if err = lvm.CheckMove(v.Get("move")); err != nil {
		return q, err
	}
	q.uuid, q.move, q.since, q.hashes, q.claim = v.Get("uuid"), v.Get("move"), v.Get("since"), v.Get("hashes") == "1", v.Get("claim")
	if q.since != "" {
		if err = lvm.CheckMove(q.since); err != nil {
			return q, err
		}
	}
	var wrong [2]error
	q.span.from, wrong[0] = strconv.ParseInt(v.Get("from"), 10, 64)
	q.span.to, wrong[1] = strconv.ParseInt(v.Get("to"), 10, 64)
	if errors.Join(wrong[:]...) != nil || q.span.from < 0 || q.span.to < q.span.from || len(q.uuid) > 64 || len(q.claim) > maxClaim {
		return q, lvm.Errorf(lvm.KindInvalid, "the request names no range of a volume")
	}
	if (q.claim != "") != q.id.IsSnapshot() || q.claim != "" && q.since != "" {
		return q, lvm.Errorf(lvm.KindInvalid, "the request is for a snapshot without a claim, or with a round, or for a volume with a claim")
	}
	return q, nil
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r.URL.Query())
	if err != nil || r.Method != http.MethodGet || r.URL.Path != path {
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
		http.Error(w, "this node sends as many volumes as it may at the same time", http.StatusServiceUnavailable)
		return
	}
	ctx, ended, err := s.begin(r.Context(), pullKey{q.id, q.claim})
	if err == nil {
		defer ended()
		err = s.send(ctx, w, q, request)
	}
	if err == nil {
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
	device, err := s.device(ctx, q)
	if err != nil {
		return err
	}
	changes, err := s.changes.of(ctx, s.engine, q)
	if err != nil {
		return err
	}
	file, size, err := openDevice(device, q.mode())
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
	o := &outgoing{server: s, w: w, control: http.NewResponseController(w), q: q, changes: changes, request: r, authorized: time.Now()}
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

// mode is how to open what is sent: nothing may write a volume meanwhile, and nothing can write a snapshot.
func (q query) mode() openMode {
	if q.claim != "" {
		return readShared
	}
	return readAlone
}

// sizeHeader has the size of the device in bytes.
const sizeHeader = "Nodelvm-Device-Size"

// changedHeader has how many bytes of it changed, if the request asked for changes alone.
const changedHeader = "Nodelvm-Changed-Size"

// outgoing is the body of one answer.
type outgoing struct {
	server     *server
	w          io.Writer
	control    *http.ResponseController
	q          query
	changes    *lvm.Changes // nil: everything is sent
	request    Request
	authorized time.Time // last
}

// read is a chunk that was read.
type read struct {
	buffer []byte
	data   []byte
	hash   [sha256.Size]byte
	zero   bool
	skip   int64 // so many chunks did not change, and were not read
	err    error
}

// readAhead is how many chunks of one volume are in memory.
const readAhead = 8

func (o *outgoing) sendChunks(ctx context.Context, file *os.File, size lvm.Bytes) error {
	ctx, cancel := context.WithCancel(ctx)
	chunks := make(chan read, readAhead)
	free := make(chan []byte, readAhead)
	var buffers [readAhead][]byte
	for i := range buffers {
		buffers[i] = newBuffer()
		free <- buffers[i]
	}
	var reader sync.WaitGroup
	reader.Go(func() { o.read(ctx, file, size, free, chunks) })
	defer func() {
		cancel()
		close(free) // the reader may wait for one
		reader.Wait()
		for _, b := range buffers {
			freeBuffer(b)
		}
	}()
	digest := sha256.New()
	for at := o.q.span.from; at < o.q.span.to; {
		c, more := <-chunks
		if !more {
			return context.Cause(ctx)
		}
		at += max(1, c.skip)
		switch {
		case c.err != nil:
		case c.skip > 0:
			digest.Write(skipFrame(c.skip))
			c.err = o.write(skipFrame(c.skip))
		default:
			digest.Write(c.hash[:])
			c.err = o.sendChunk(ctx, c)
		}
		free <- c.buffer
		if c.err != nil {
			return c.err
		}
	}
	// The device was not another volume's meanwhile, and nothing else was allowed to write it.
	if _, err := o.server.device(ctx, o.q); err != nil {
		return err
	}
	return o.write([]byte{frameEnd}, digest.Sum(nil))
}

// read reads the chunks and their hashes, ahead of what is sent.
func (o *outgoing) read(ctx context.Context, file *os.File, size lvm.Bytes, free <-chan []byte, chunks chan<- read) {
	yieldToPods()
	defer close(chunks)
	for i := o.q.span.from; i < o.q.span.to; {
		r := read{buffer: <-free}
		if r.buffer == nil {
			return // closed
		}
		if r.skip = o.unchanged(i); r.skip == 0 {
			o.readChunk(ctx, file, size, i, &r)
		}
		i += max(1, r.skip)
		failed := r.err != nil
		select {
		case chunks <- r:
		case <-ctx.Done():
			return
		}
		if failed {
			return
		}
	}
}

// unchanged returns how many chunks from this one on did not change.
func (o *outgoing) unchanged(chunk int64) int64 {
	if o.changes == nil {
		return 0
	}
	next, _ := o.changes.Next(chunk)
	return min(next, o.q.span.to) - chunk
}

func (o *outgoing) readChunk(ctx context.Context, file *os.File, size lvm.Bytes, chunk int64, r *read) {
	u := o.q.unit()
	r.data = r.buffer[:u.lengthOf(size, chunk)]
	if r.err = o.server.limit.wait(ctx, len(r.data)); r.err == nil {
		r.err = readAt(file, r.data, u.offset(chunk))
	}
	if r.err != nil {
		return
	}
	if r.zero = isZero(r.data); r.zero {
		r.hash = hashOfZeroes(len(r.data))
	} else {
		r.hash = sha256.Sum256(r.data)
	}
}

func (o *outgoing) sendChunk(ctx context.Context, c read) error {
	if time.Since(o.authorized) > reauthorize {
		if err := o.server.authorize(ctx, o.request); err != nil {
			return err
		}
		o.authorized = time.Now()
	}
	switch {
	case o.q.hashes:
		return o.write([]byte{frameHash}, c.hash[:])
	case c.zero:
		return o.write([]byte{frameZero})
	}
	return o.write([]byte{frameData}, c.hash[:], c.data)
}

func (o *outgoing) write(parts ...[]byte) error {
	if err := o.control.SetWriteDeadline(time.Now().Add(chunkTime)); err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := o.w.Write(part); err != nil {
			return err
		}
	}
	return nil
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
	return &boundedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

type boundedConn struct {
	net.Conn
	release func()
}

func (c *boundedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
