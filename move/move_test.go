package move

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
	"github.com/nodelvm/nodelvm/lvm/lvmtest/check"
)

// files is an engine whose volumes are files: one group on each side.
type files struct {
	Engine // nil: the tests call nothing else
	dir    string

	mu           sync.Mutex
	volumes      map[lvm.ID]lvm.Volume
	full         bool
	noted        func() error // called by NoteCopied
	rounds       []lvm.Round
	incomparable error // why nothing can be compared
}

const (
	sourceVG = lvm.VGUUID("aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa")
	targetVG = lvm.VGUUID("bbbbbb-bbbb-bbbb-bbbb-bbbb-bbbb-bbbbbb")
)

func (e *files) file(id lvm.ID) string { return filepath.Join(e.dir, string(id.VG[:1])+"-"+id.LV) }

func (e *files) volume(id lvm.ID) lvm.Volume {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.volumes[id]
}

func (e *files) change(id lvm.ID, step func(v *lvm.Volume) error) (lvm.Volume, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	v, there := e.volumes[id]
	if !there {
		return v, lvm.Errorf(lvm.KindNotFound, "no volume %s", id)
	}
	err := step(&v)
	if err == nil {
		e.volumes[id] = v
	}
	return v, err
}

func to(v *lvm.Volume, state lvm.VolumeState) error {
	if v.State != state && !lvm.CanMove(v.State, state) {
		return lvm.Errorf(lvm.KindConflict, "%s to %s", v.State, state)
	}
	v.State = state
	return nil
}

func (e *files) Hold(_ context.Context, id lvm.ID, _, move string) (lvm.Volume, error) {
	return e.change(id, func(v *lvm.Volume) error {
		if v.State != lvm.StateMoving {
			v.Move = move
		}
		return to(v, lvm.StateMoving)
	})
}

func (e *files) ReleaseHeld(_ context.Context, id lvm.ID, _ string) error {
	_, err := e.change(id, func(v *lvm.Volume) error { return to(v, lvm.StateReady) })
	return err
}

func (e *files) HandOver(_ context.Context, id lvm.ID, _, _ string) error {
	_, err := e.change(id, func(v *lvm.Volume) error { return to(v, lvm.StateMoved) })
	return err
}

func (e *files) MoveDevice(_ context.Context, id lvm.ID, _, move string) (device string, err error) {
	device = e.file(id)
	_, err = e.change(id, func(v *lvm.Volume) error {
		if slices.ContainsFunc(e.rounds, func(r lvm.Round) bool { return r.Move == move && r.Source == id }) {
			device = e.file(lvm.ID{VG: id.VG, LV: lvm.RoundName(move)})
			return nil
		}
		if v.Move != move || v.State != lvm.StateMoving && v.State != lvm.StateReceiving {
			return lvm.Errorf(lvm.KindConflict, "its state is %s", v.State)
		}
		return nil
	})
	return device, err
}

func (e *files) Receive(_ context.Context, in lvm.Incoming) (lvm.Volume, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.full {
		return lvm.Volume{}, lvm.Errorf(lvm.KindInsufficientCapacity, "full")
	}
	id := lvm.ID{VG: targetVG, LV: in.Spec.Name}
	v, there := e.volumes[id]
	if !there {
		v = lvm.Volume{ID: id, UUID: "target", Name: in.Spec.Name, Claim: in.Spec.Claim, Class: in.Spec.Class, Size: in.Spec.Required + 3*lvm.MiB, State: lvm.StateReceiving, FormatMark: in.FormatMark, Limits: in.Spec.Limits}
		if err := os.WriteFile(e.file(id), bytes.Repeat([]byte("old "), int(v.Size/4)), 0o600); err != nil {
			return v, err
		}
	}
	switch { // as alloc.PlanReceive
	case v.Move == in.Move && (v.Base == "" || v.Base == in.Move || v.Base == in.Since):
	case v.Move != in.Move && in.Since != "" && v.Base == in.Since && v.Move == in.Since:
		v.Move, v.Copied = in.Move, 0
	default:
		v.Move, v.Copied, v.Base = in.Move, 0, ""
	}
	e.volumes[id] = v
	return v, nil
}

func (e *files) NoteCopied(_ context.Context, id lvm.ID, _, _ string, copied lvm.Bytes) error {
	if e.noted != nil {
		if err := e.noted(); err != nil {
			return err
		}
	}
	_, err := e.change(id, func(v *lvm.Volume) error { v.Copied = copied; return nil })
	return err
}

func (e *files) Received(_ context.Context, id lvm.ID, _, move string) (lvm.Volume, error) {
	return e.change(id, func(v *lvm.Volume) error {
		if v.Move != move {
			return lvm.Errorf(lvm.KindConflict, "another move")
		}
		v.Copied, v.Base = 0, ""
		return to(v, lvm.StateReceived)
	})
}

func (e *files) Finish(_ context.Context, id lvm.ID, _ string) (lvm.Volume, error) {
	return e.change(id, func(v *lvm.Volume) error { return to(v, lvm.StateReady) })
}

func (e *files) Discard(_ context.Context, id lvm.ID, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.volumes, id)
	return os.Remove(e.file(id))
}

// allow authorizes the peers whose token and key it knows.
type allow struct {
	mu   sync.Mutex
	keys map[string]string // key by token
}

func (a *allow) MayPull(_ context.Context, r Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.keys[r.Token] == "" || a.keys[r.Token] != r.Key {
		return lvm.Errorf(lvm.KindInvalid, "not this peer")
	}
	return nil
}

// bed is a source and a target.
type bed struct {
	t       testing.TB
	engine  *files
	allowed *allow
	source  *Node
	target  *Node
	content []byte
	id      lvm.ID
	pipe    func(net.Conn) net.Conn // wraps what the source accepts

	mu     sync.Mutex
	copied []string // what Config.Copied got
}

var testClass = lvm.Class{Group: "vg", Layout: lvm.LayoutLinear, Wipe: lvm.WipeNone}

// newBed has a volume of this size, a third of it zero.
func newBed(t testing.TB, size lvm.Bytes, pipe func(net.Conn) net.Conn) *bed {
	t.Helper()
	dir := os.Getenv("NODELVM_TEST_MOVE_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	b := &bed{t: t, engine: &files{dir: dir, volumes: map[lvm.ID]lvm.Volume{}}, allowed: &allow{keys: map[string]string{}}, id: lvm.ID{VG: sourceVG, LV: "pvc"}, pipe: pipe}
	b.content = make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	for at := lvm.Bytes(0); at < size; at += lvm.MiB {
		if at/lvm.MiB%3 != 1 {
			_, _ = random.Read(b.content[at:min(size, at+lvm.MiB)])
		}
	}
	must(t, os.WriteFile(b.engine.file(b.id), b.content, 0o600))
	b.engine.volumes[b.id] = lvm.Volume{ID: b.id, UUID: "source", Name: "pvc", Class: testClass, Size: size, State: lvm.StateReady}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	b.source = b.node(listener.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.source.Serve(ctx, pipeListener{listener, pipe}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	b.newTarget()
	return b
}

type pipeListener struct {
	net.Listener
	pipe func(net.Conn) net.Conn
}

func (l pipeListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil && l.pipe != nil {
		c = l.pipe(c)
	}
	return c, err
}

func (b *bed) node(address string) *Node {
	n, err := New(Config{
		Engine: b.engine, Authorizer: b.allowed, Address: address, Token: func() (string, error) { return "token", nil }, Log: slog.New(slog.DiscardHandler),
		Copied: func(volume string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.copied = append(b.copied, volume)
		},
	})
	must(b.t, err)
	return n
}

// newTarget starts another process on the target.
func (b *bed) newTarget() {
	b.t.Helper()
	b.endTarget()
	b.target = b.node("")
	b.allowed.mu.Lock()
	b.allowed.keys = map[string]string{"token": b.target.Key()}
	b.allowed.mu.Unlock()
	b.t.Cleanup(b.endTarget)
}

func (b *bed) endTarget() {
	if b.target != nil {
		if err := b.target.Close(context.WithoutCancel(b.t.Context())); err != nil {
			b.t.Error(err)
		}
	}
}

func (b *bed) hold() Offer {
	b.t.Helper()
	offer, err := b.source.Hold(b.t.Context(), b.id, "source")
	must(b.t, err)
	return offer
}

// receive waits until a copy has this outcome.
func (b *bed) receive(offer Offer, until func(Progress) bool) Progress {
	b.t.Helper()
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		p, err := b.target.Receive(b.t.Context(), offer, testClass)
		must(b.t, err)
		if until(p) {
			return p
		}
		if time.Since(start) > 2*time.Minute {
			b.t.Fatalf("no such outcome: %+v", p)
		}
	}
}

func isReceived(p Progress) bool { return p.Volume.State == lvm.StateReceived }
func hasFailed(p Progress) bool  { return p.Problem != nil && !p.Running }

// check compares the target's file with the source's.
func (b *bed) check(p Progress) {
	b.t.Helper()
	got, err := os.ReadFile(b.engine.file(p.Volume.ID))
	must(b.t, err)
	if !bytes.Equal(got[:len(b.content)], b.content) {
		b.t.Fatal("the copy differs from the source")
	}
	if !isAllZero(got[len(b.content):]) {
		b.t.Error("what another volume left is behind the copy")
	}
	if p.Done != lvm.Bytes(len(b.content)) || p.Total != p.Done {
		b.t.Errorf("progress: %+v", p)
	}
}

func isAllZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

var must = check.Must

// TestMove copies volumes with ends within a chunk, and finishes.
func TestMove(t *testing.T) {
	for _, size := range []lvm.Bytes{lvm.MiB, 4 * lvm.MiB, 66*lvm.MiB + 4096} {
		b := newBed(t, size, nil)
		offer := b.hold()
		b.check(b.receive(offer, isReceived))
		must(t, b.source.HandOver(t.Context(), b.id, "source", offer.Move))
		v, err := b.target.Finish(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target")
		if err != nil || v.State != lvm.StateReady {
			t.Errorf("finished as %+v, %v", v, err)
		}
		b.endTarget()
		b.mu.Lock()
		if !slices.Equal(b.copied, []string{"pvc", "pvc"}) {
			t.Errorf("both sides are to know that the copy is complete, once: %q", b.copied)
		}
		b.mu.Unlock()
	}
}

// TestFormatMark: a volume that was never mounted can be formatted at the target, also if a mkfs was interrupted: the copy has its own mark wherever the
// driver searches for one.
func TestFormatMark(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	offer := b.hold()
	offer.FormatMark = 2 * lvm.MiB
	places := append(lvm.FormatMarkPlaces(offer.FormatMark, 4*lvm.MiB), int64(lvm.MiB)) // the last is a user's data
	for _, at := range places {
		copy(b.content[at:], lvm.FormatMark("source"))
	}
	must(t, os.WriteFile(b.engine.file(b.id), b.content, 0o600))
	p := b.receive(offer, isReceived)
	for _, at := range places[:3] {
		copy(b.content[at:], lvm.FormatMark("target"))
	}
	b.check(p)
}

// TestLimits: the limits of a volume's I/O move with it.
func TestLimits(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	limits := lvm.Limits{Fixed: lvm.Rates{ReadIOPS: 100}, PerGiB: lvm.Rates{WriteBandwidth: lvm.MiB}}
	_, err := b.engine.change(b.id, func(v *lvm.Volume) error { v.Limits = limits; return nil })
	must(t, err)
	offer := b.hold()
	b.receive(offer, isReceived)
	if v := b.engine.volume(lvm.ID{VG: targetVG, LV: "pvc"}); v.Limits != limits {
		t.Errorf("the copy has the limits %s, want %s", v.Limits, limits)
	}
}

// TestProgress: what is written counts as copied before it is flushed, so that a small or slow copy shows progress, too.
func TestProgress(t *testing.T) {
	b := newBed(t, 24*lvm.MiB, nil)
	b.target.limit.rate = 40 * lvm.MiB
	offer := b.hold()
	if p := b.receive(offer, func(p Progress) bool { return p.Done > 0 }); p.Done >= p.Total || p.Volume.State != lvm.StateReceiving {
		t.Errorf("the first progress is %+v", p)
	}
	b.check(b.receive(offer, isReceived))
}

// TestResume kills the target at each noted place, and the connection in between: the next process continues, and compares what the former one
// wrote, even if it is damaged meanwhile.
func TestResume(t *testing.T) {
	b := newBed(t, 12*lvm.MiB, nil)
	offer := b.hold()
	class := testClass
	for _, copied := range []lvm.Bytes{0, lvm.MiB, 7 * lvm.MiB, 12 * lvm.MiB} {
		for _, damage := range []lvm.Bytes{-1, 0, copied / 2} {
			must(t, b.target.Discard(t.Context(), b.first(offer, class), "target"))
			id := b.first(offer, class)
			b.newTarget()
			file, err := os.OpenFile(b.engine.file(id), os.O_RDWR, 0)
			must(t, err)
			_, err = file.WriteAt(b.content[:copied], 0)
			must(t, err)
			if damage >= 0 && copied > 0 {
				_, err = file.WriteAt([]byte("damage"), int64(damage))
				must(t, err)
			}
			must(t, file.Close())
			_, err = b.engine.change(id, func(v *lvm.Volume) error { v.Copied, v.State = copied, lvm.StateReceiving; return nil })
			must(t, err)
			b.check(b.receive(offer, isReceived))
		}
	}
}

// first creates the volume at the target without a copy.
func (b *bed) first(offer Offer, class lvm.Class) lvm.ID {
	b.t.Helper()
	b.newTarget()
	v, err := b.engine.Receive(b.t.Context(), lvm.Incoming{Spec: lvm.Spec{Name: offer.Name, Class: class, Required: offer.Size}, Move: offer.Move})
	must(b.t, err)
	return v.ID
}

// cutConn ends a connection after so many bytes that it sent.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		_ = c.Close()
		return 0, errors.New("cut")
	}
	return c.Conn.Write(b)
}

// TestCutConnections ends each connection after some bytes, at random: the copy goes on where it was, and ends.
func TestCutConnections(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	cuts := 6
	b := newBed(t, 80*lvm.MiB, func(c net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		if cuts--; cuts < 0 {
			return c
		}
		return &cutConn{Conn: c, left: random.IntN(40 << 20)}
	})
	offer := b.hold()
	var last lvm.Bytes
	b.check(b.receive(offer, func(p Progress) bool {
		if p.Done < last {
			t.Errorf("the progress went from %s back to %s", last, p.Done)
		}
		last = p.Done
		b.target.retryNow()
		return isReceived(p)
	}))
}

// retryNow ends the pause after a failed attempt.
func (n *Node) retryNow() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, j := range n.copies {
		j.again = time.Time{}
	}
}

// TestRefused: nothing is sent without the token and the key that belong together, nor of a volume that is not held, or held for another move.
func TestRefused(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	offer := b.hold()
	for what, spoil := range map[string]func(o *Offer){
		"another key of the source": func(o *Offer) { o.Key = b.target.Key() },
		"no key of the source":      func(o *Offer) { o.Key = "" },
		"another move":              func(o *Offer) { o.Move = strings.Repeat("0", 32) },
		"no address":                func(o *Offer) { o.Address = "nowhere" },
		"a longer volume":           func(o *Offer) { o.Size += 4 * lvm.MiB },
	} {
		wrong := offer
		spoil(&wrong)
		if p := b.receive(wrong, hasFailed); p.Done != 0 {
			t.Errorf("%s: %+v", what, p)
		}
		must(t, b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target"))
	}
	b.allowed.mu.Lock()
	b.allowed.keys = map[string]string{"token": "sha256:other"}
	b.allowed.mu.Unlock()
	if p := b.receive(offer, hasFailed); p.Done != 0 || !strings.Contains(p.Problem.Error(), "403") {
		t.Errorf("another node's token: %+v", p)
	}
	must(t, b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target"))
	b.newTarget()
	must(t, b.source.Cancel(t.Context(), b.id, "source"))
	if p := b.receive(offer, hasFailed); p.Done != 0 {
		t.Errorf("a volume that is not held: %+v", p)
	}
}

// TestWithoutTLSKey: a peer without a key is not answered, and one without HTTPS neither.
func TestWithoutTLSKey(t *testing.T) {
	b := newBed(t, lvm.MiB, nil)
	offer := b.hold()
	config := b.target.key.clientTLS(offer.Key)
	config.Certificates = nil
	for _, c := range []*http.Client{{Transport: &http.Transport{TLSClientConfig: config}}, {}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+offer.Address+path, http.NoBody)
		must(t, err)
		r.Header.Set("Authorization", "Bearer token")
		if answer, err := c.Do(r); err == nil {
			_ = answer.Body.Close()
			t.Errorf("answered %s", answer.Status)
		}
	}
}

// TestRequestWithBody: a peer that may pull announces a body and sends none. It holds neither the volume nor a connection.
func TestRequestWithBody(t *testing.T) {
	b := newBed(t, lvm.MiB, nil)
	offer := b.hold()
	q := query{id: b.id, uuid: offer.UUID, move: offer.Move, span: span{0, 1}}
	for _, body := range []string{"Content-Length: 1", "Transfer-Encoding: chunked"} {
		c, err := (&tls.Dialer{Config: b.target.key.clientTLS(offer.Key)}).DialContext(t.Context(), "tcp", offer.Address)
		must(t, err)
		must(t, c.SetDeadline(time.Now().Add(5*time.Second)))
		_, err = fmt.Fprintf(c, "GET %s?%s HTTP/1.1\r\nHost: source\r\nAuthorization: Bearer token\r\n%s\r\n\r\n", path, q.values().Encode(), body)
		must(t, err)
		answer, err := io.ReadAll(c)
		if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 400 ")) {
			t.Errorf("%s: %.100q, %v", body, answer, err)
		}
		b.source.server.mu.Lock()
		if len(b.source.server.pulls) > 0 {
			t.Errorf("%s: the peer holds the volume", body)
		}
		b.source.server.mu.Unlock()
		_ = c.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	must(t, b.source.Cancel(ctx, b.id, "source"))
}

// TestHostileSource: each answer fails the attempt, and no byte of it counts.
func TestHostileSource(t *testing.T) {
	b := newBed(t, 2*lvm.MiB, nil)
	chunk := bytes.Repeat([]byte{7}, int(chunkSize))
	of := header(frameData, chunk)
	data, wrong := joined(string(of), string(chunk)), joined(string(header(frameData, chunk[1:])), string(chunk))
	end := func(headers ...[]byte) string {
		sum := sha256.Sum256(bytes.Join(headers, nil))
		return string(frameEnd) + string(sum[:])
	}
	for what, body := range map[string]string{
		"nothing":            "",
		"a cut frame":        data[:100],
		"one chunk":          data,
		"no end":             data + data,
		"a wrong whole":      data + data + end(of),
		"a wrong checksum":   data + wrong + end(of, []byte(wrong[:len(of)])),
		"too many chunks":    data + data + data,
		"an unknown frame":   "?" + data,
		"hashes for content": string(header(frameHash, chunk)) + string(header(frameHash, chunk)),
		"endless":            "",
		"a skipped chunk":    string(skipFrame(1)) + data,
	} {
		key, err := newIdentity()
		must(t, err)
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		must(t, err)
		server := &http.Server{TLSConfig: key.serverTLS(), ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(sizeHeader, fmt.Sprint(2*int64(lvm.MiB)))
			_, _ = io.WriteString(w, body)
			for what == "endless" {
				if _, err := io.WriteString(w, data); err != nil {
					return
				}
			}
		}), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
		go func() { _ = server.ServeTLS(listener, "", "") }()
		offer := b.hold()
		offer.Address, offer.Key = listener.Addr().String(), key.id
		p := b.receive(offer, hasFailed)
		if p.Volume.State != lvm.StateReceiving {
			t.Errorf("%s: %+v", what, p)
		}
		says := map[string]string{"a wrong whole": "checksum of the whole", "a wrong checksum": "is not what its source read"}[what]
		if t.Logf("%s: %v", what, p.Problem); !strings.Contains(p.Problem.Error(), says) {
			t.Errorf("%s: it does not say %q", what, says)
		}
		must(t, b.target.Discard(t.Context(), p.Volume.ID, "target"))
		must(t, server.Close())
	}
}

// TestOfferNamesAnotherMove: a source that gives its volume the move of another source's volume gets nothing of that into its own, and writes nothing
// into it.
func TestOfferNamesAnotherMove(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	forged := bytes.Repeat([]byte("forged! "), len(b.content)/8)
	thief := lvm.ID{VG: sourceVG, LV: "pvc-thief"}
	must(t, os.WriteFile(b.engine.file(thief), forged, 0o600))
	b.engine.volumes[thief] = lvm.Volume{ID: thief, UUID: "thief", Name: "pvc-thief", Class: testClass, Size: 4 * lvm.MiB, State: lvm.StateReady}
	for what, first := range map[string]func(victims, thiefs Offer) Offer{
		"the victim's copy waits": func(victims, _ Offer) Offer { return victims },
		"the thief's copy waits":  func(_, thiefs Offer) Offer { return thiefs },
	} {
		victims := b.hold()
		v, err := b.engine.Hold(t.Context(), thief, "thief", victims.Move)
		must(t, err)
		thiefs := b.source.offer(v)
		waits := first(victims, thiefs)
		waits.Address = "127.0.0.1:1"
		b.receive(waits, hasFailed)
		b.target.retryNow()
		b.receive(thiefs, func(p Progress) bool { return isReceived(p) || hasFailed(p) })
		b.target.retryNow()
		b.receive(victims, func(p Progress) bool { return isReceived(p) || hasFailed(p) })
		for name, content := range map[string][]byte{"pvc": b.content, "pvc-thief": forged} {
			id := lvm.ID{VG: targetVG, LV: name}
			got, err := os.ReadFile(b.engine.file(id))
			if err != nil || !bytes.Equal(got[:len(content)], content) || b.engine.volume(id).State != lvm.StateReceived {
				t.Errorf("%s: %s is %s, and has not the content of its source (%v)", what, name, b.engine.volume(id).State, err)
			}
			_ = b.target.Discard(t.Context(), id, "target")
		}
		_, err = b.engine.change(b.id, func(v *lvm.Volume) error { return to(v, lvm.StateReady) })
		must(t, err)
		_, err = b.engine.change(thief, func(v *lvm.Volume) error { return to(v, lvm.StateReady) })
		must(t, err)
	}
}

// TestOfferChanges: a source that changes its offer of one move ends no target. The copy begins again as what the source offers now.
func TestOfferChanges(t *testing.T) {
	b := newBed(t, 8*lvm.MiB, nil)
	for what, change := range map[string]func(o *Offer){
		"smaller":          func(o *Offer) { o.Size = lvm.MiB },
		"negative":         func(o *Offer) { o.Size = -lvm.TiB },
		"larger":           func(o *Offer) { o.Size += lvm.MiB },
		"a round":          func(o *Offer) { o.Round = true },
		"since a round":    func(o *Offer) { o.Since = newMove() },
		"another volume":   func(o *Offer) { o.Volume, o.UUID = lvm.ID{VG: sourceVG, LV: "other"}.String(), "other" },
		"a far-off mark":   func(o *Offer) { o.FormatMark = math.MaxInt64 },
		"a negative mark":  func(o *Offer) { o.FormatMark = -4096 },
		"the largest size": func(o *Offer) { o.Size, o.Class.Encryption = math.MaxInt64, lvm.EncryptionLUKS2 },
	} {
		offer := b.hold()
		waits := offer
		waits.Address = "127.0.0.1:1"
		b.receive(waits, hasFailed)
		b.target.retryNow()
		changed := offer
		change(&changed)
		for range 20 {
			p, err := b.target.Receive(t.Context(), changed, testClass)
			if err != nil || !p.Running {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Log(what)
		_ = b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target")
		b.check(b.receive(offer, isReceived))
		must(t, b.target.Discard(t.Context(), lvm.ID{VG: targetVG, LV: "pvc"}, "target"))
	}
}

// meeting is an engine whose volume is asked for once more when it is about to be discarded.
type meeting struct {
	*files
	ask func()
}

func (e meeting) Discard(ctx context.Context, id lvm.ID, uuid string) error {
	e.ask()
	return e.files.Discard(ctx, id, uuid)
}

// TestDiscardMeetsRequest: a copy that begins in a volume while that is discarded, or whose volume an admin removes, begins again in another one.
func TestDiscardMeetsRequest(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	offer, id := b.hold(), lvm.ID{VG: targetVG, LV: "pvc"}
	silent := offer
	silent.Address = "127.0.0.1:1"
	for what, ask := range map[string]func(){
		"it fails":       func() { b.receive(silent, hasFailed) },
		"it is complete": func() { b.receive(offer, isReceived) },
	} {
		b.receive(silent, hasFailed)
		b.target.cfg.Engine = meeting{b.engine, ask}
		must(t, b.target.Discard(t.Context(), id, "target"))
		b.target.cfg.Engine = b.engine
		b.target.retryNow()
		p, err := b.target.Receive(t.Context(), offer, testClass)
		must(t, err)
		if b.engine.volume(id).UUID == "" {
			t.Fatalf("%s: no volume is created: %+v", what, p)
		}
		b.check(b.receive(offer, isReceived))
		must(t, b.target.Discard(t.Context(), id, "target"))
	}
	b.receive(silent, hasFailed)
	must(t, b.engine.Discard(t.Context(), id, "target"))
	for start := time.Now(); b.engine.volume(id).UUID == ""; time.Sleep(5 * time.Millisecond) {
		b.target.retryNow()
		_, err := b.target.Receive(t.Context(), offer, testClass)
		must(t, err)
		if time.Since(start) > 10*time.Second {
			t.Fatal("the volume was removed, and no other one is created")
		}
	}
	b.check(b.receive(offer, isReceived))
}

// renumbered is an engine that once answers with the device of another volume: the kernel has given that the number in between.
type renumbered struct {
	*files
	group lvm.VGUUID // of the volume
	other string
	once  sync.Once
}

func (e *renumbered) MoveDevice(ctx context.Context, id lvm.ID, uuid, move string) (string, error) {
	device, err := e.files.MoveDevice(ctx, id, uuid, move)
	if id.VG == e.group {
		e.once.Do(func() { device = e.other })
	}
	return device, err
}

// TestRenumberedDevice: neither side reads or writes the device of another volume.
func TestRenumberedDevice(t *testing.T) {
	for what, group := range map[string]lvm.VGUUID{"source": sourceVG, "target": targetVG} {
		b := newBed(t, 4*lvm.MiB, nil)
		e := &renumbered{files: b.engine, group: group, other: filepath.Join(b.engine.dir, "dm-7")}
		foreign := bytes.Repeat([]byte("foreign "), 8<<17)
		must(t, os.WriteFile(e.other, foreign, 0o600))
		b.source.server.engine, b.target.cfg.Engine = e, e
		offer := b.hold()
		p := b.receive(offer, func(p Progress) bool { return isReceived(p) || hasFailed(p) })
		if p.Problem == nil {
			t.Errorf("%s: the device of another volume is accepted: %+v", what, p)
		}
		if got, err := os.ReadFile(b.engine.file(p.Volume.ID)); err != nil || bytes.Contains(got, foreign[:64]) {
			t.Errorf("%s: another volume's data was sent (%v)", what, err)
		}
		if got, err := os.ReadFile(e.other); err != nil || !bytes.Equal(got, foreign) {
			t.Errorf("%s: another volume was written (%v)", what, err)
		}
		b.target.retryNow()
		b.check(b.receive(offer, isReceived))
	}
}

func joined(parts ...string) string { return strings.Join(parts, "") }

// TestTargetFails: a full group refuses, and a target whose device fails does not finish.
func TestTargetFails(t *testing.T) {
	b := newBed(t, 2*lvm.MiB, nil)
	offer := b.hold()
	b.engine.full = true
	if _, err := b.target.Receive(t.Context(), offer, testClass); lvm.KindOf(err) != lvm.KindInsufficientCapacity {
		t.Errorf("full: %v", err)
	}
	b.engine.full = false
	id := b.first(offer, testClass)
	must(t, os.Truncate(b.engine.file(id), int64(lvm.MiB)))
	if p := b.receive(offer, hasFailed); p.Volume.State != lvm.StateReceiving {
		t.Errorf("a short device: %+v", p)
	}
}

// TestSourceFails: a source whose device cannot be read to its end sends no end.
func TestSourceFails(t *testing.T) {
	b := newBed(t, 4*lvm.MiB, nil)
	offer := b.hold()
	must(t, os.Truncate(b.engine.file(b.id), int64(3*lvm.MiB)))
	if p := b.receive(offer, hasFailed); p.Volume.State != lvm.StateReceiving {
		t.Errorf("%+v", p)
	}
}

// TestCancelDuringPull: after Cancel nothing is sent, and the copy never counts as complete.
func TestCancelDuringPull(t *testing.T) {
	b := newBed(t, 64*lvm.MiB, nil)
	b.source.server.limit.rate = MinRate
	offer := b.hold()
	b.receive(offer, func(p Progress) bool {
		b.source.server.mu.Lock()
		defer b.source.server.mu.Unlock()
		return len(b.source.server.pulls) > 0
	})
	must(t, b.source.Cancel(t.Context(), b.id, "source"))
	if p := b.receive(offer, hasFailed); p.Volume.State != lvm.StateReceiving {
		t.Errorf("%+v", p)
	}
}

// TestLimiter: the limit holds for all copies together.
func TestLimiter(t *testing.T) {
	l := &limiter{rate: 100 * lvm.MiB}
	start := time.Now()
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for range 5 {
				must(t, l.wait(t.Context(), int(lvm.MiB)))
			}
		})
	}
	work.Wait()
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("20 MiB at 100 MiB/s took %s", took)
	}
}

// FuzzFrames: no body makes the decoder return more than it was asked for, or end without the right checksum.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("ZE"), false)
	f.Add([]byte("H"), true)
	f.Add(append(skipFrame(3), 'E'), true)
	f.Fuzz(func(t *testing.T, body []byte, hashes bool) {
		frames := newFrames(bytes.NewReader(body), hashes, true)
		buffer := make([]byte, 64)
		digest := sha256.New()
		for range 4 {
			got, err := frames.next(buffer, 16)
			if err != nil {
				return
			}
			if len(got.data) != 0 && len(got.data) != 16 {
				t.Fatalf("%d bytes", len(got.data))
			}
			if got.kind == frameSkip {
				digest.Write(skipFrame(got.skip))
				continue
			}
			digest.Write(got.header)
		}
		if frames.end() == nil && !bytes.Contains(body, digest.Sum(nil)) {
			t.Fatal("an end without its checksum")
		}
	})
}
