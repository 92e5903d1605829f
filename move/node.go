package move

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// Engine is what a Node needs of host.Host, which documents the methods.
type Engine interface {
	held
	receiving
	rounds
	Hold(ctx context.Context, id lvm.ID, uuid, move string) (lvm.Volume, error)
	ReleaseHeld(ctx context.Context, id lvm.ID, uuid string) error
	HandOver(ctx context.Context, id lvm.ID, uuid, move string) error
	RemoveMoved(ctx context.Context, id lvm.ID, uuid string) error
	Receive(ctx context.Context, in lvm.Incoming) (lvm.Volume, error)
	Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error)
	Discard(ctx context.Context, id lvm.ID, uuid string) error
	NoteMove(ctx context.Context, id lvm.ID, uuid, record string) error
}

// Config configures a Node.
type Config struct {
	Engine     Engine
	Authorizer Authorizer
	Token      func() (string, error) // Of this node, for another one's Authorizer.
	Address    string                 // Host:port at which other nodes reach Serve's listener.
	Rate       lvm.Bytes              // Bytes per second that this node sends, and the same that it receives. 0: no limit; else at least MinRate.
	AtOnce     int                    // volumes that it sends, and that it receives, at the same time, and as many for full copies; 0: 2
	Copied     func(volume string)    // called when a volume that moves, or a round, was sent or received completely; nil: nothing is
	Log        *slog.Logger           // nil: slog.Default()
}

// MinRate is the least rate: slower, a chunk would not pass within its time limit.
const MinRate = 4 * lvm.MiB

// Node is both sides of the moves of a node's volumes: a Source and a Target. Its methods are safe for concurrent use.
type Node struct {
	cfg    Config
	key    identity
	server *server
	limit  limiter // of what it receives
	stop   func()  // ends comparisons

	mu     sync.Mutex
	copies map[string]*job // by name of the volume
	ended  bool
	work   sync.WaitGroup
}

var (
	_ Source = (*Node)(nil)
	_ Target = (*Node)(nil)
)

// New returns a Node that does nothing until it is called.
func New(cfg Config) (*Node, error) {
	key, err := newIdentity()
	if err != nil {
		return nil, err
	}
	cfg.Log, cfg.AtOnce = cmp.Or(cfg.Log, slog.Default()), cmp.Or(cfg.AtOnce, 2)
	if cfg.Copied == nil {
		cfg.Copied = func(string) {}
	}
	if cfg.Rate != 0 && cfg.Rate < MinRate {
		return nil, lvm.Errorf(lvm.KindInvalid, "a rate of %s per second is less than %s", cfg.Rate, MinRate)
	}
	comparing, stop := context.WithCancel(context.Background())
	return &Node{cfg: cfg, key: key, stop: stop, limit: limiter{rate: cfg.Rate}, copies: map[string]*job{}, server: &server{
		engine: cfg.Engine, authorizer: cfg.Authorizer, limit: &limiter{rate: cfg.Rate}, slots: make(chan struct{}, cfg.AtOnce), snapshots: make(chan struct{}, cfg.AtOnce),
		sent: cfg.Copied, log: cfg.Log, changes: changesCache{ended: comparing.Done()},
	}}, nil
}

// Serve sends held volumes to the nodes that may pull them, until ctx ends.
func (n *Node) Serve(ctx context.Context, listener net.Listener) error {
	return n.server.serve(ctx, listener, n.key)
}

// Key is Target's.
func (n *Node) Key() string { return n.key.id }

// Hold is Source's.
func (n *Node) Hold(ctx context.Context, id lvm.ID, uuid string) (Offer, error) {
	v, err := n.cfg.Engine.Hold(ctx, id, uuid, newMove())
	if err != nil {
		return Offer{}, err
	}
	offer := n.offer(v)
	offer.Since, err = n.sinceNewest(ctx, v)
	return offer, err
}

// offer says what a volume is, and where this process serves it.
func (n *Node) offer(v lvm.Volume) Offer {
	return Offer{
		Volume: v.ID.String(), UUID: v.UUID, Move: v.Move, Name: v.Name, Claim: v.Claim, Class: v.Class, Size: v.Size, Block: v.Block, FormatMark: v.FormatMark, Limits: v.Limits,
		Address: n.cfg.Address, Key: n.key.id,
	}
}

// Cancel is Source's.
func (n *Node) Cancel(ctx context.Context, id lvm.ID, uuid string) error {
	if err := n.cfg.Engine.ReleaseHeld(ctx, id, uuid); err != nil {
		return err
	}
	return n.server.stop(ctx, id) // afterwards: no other pull can begin
}

// HandOver is Source's.
func (n *Node) HandOver(ctx context.Context, id lvm.ID, uuid, move string) error {
	if err := n.server.stop(ctx, id); err != nil {
		return err
	}
	return n.cfg.Engine.HandOver(ctx, id, uuid, move)
}

// Remove is Source's.
func (n *Node) Remove(ctx context.Context, id lvm.ID, uuid string) error {
	return n.cfg.Engine.RemoveMoved(ctx, id, uuid)
}

// Moves is Source's.
func (n *Node) Moves(ctx context.Context) ([]lvm.Volume, error) { return n.cfg.Engine.Moves(ctx) }

// Note replaces the record of a volume's move, of at most lvm.MaxRecord bytes.
func (n *Node) Note(ctx context.Context, id lvm.ID, uuid, record string) error {
	return n.cfg.Engine.NoteMove(ctx, id, uuid, record)
}

// Finish is Target's.
func (n *Node) Finish(ctx context.Context, id lvm.ID, uuid string) (lvm.Volume, error) {
	v, err := n.cfg.Engine.Finish(ctx, id, uuid)
	if err == nil {
		err = n.forget(ctx, func(j *job) bool { return j.volume.ID == id && j.volume.UUID == uuid })
	}
	return v, err
}

// Discard is Target's.
func (n *Node) Discard(ctx context.Context, id lvm.ID, uuid string) error {
	is := func(j *job) bool { return j.volume.ID == id && j.volume.UUID == uuid }
	if err := n.forget(ctx, is); err != nil {
		return err
	}
	if err := n.cfg.Engine.Discard(ctx, id, uuid); err != nil {
		return err
	}
	return n.forget(ctx, is) // a request may have found the volume meanwhile
}

// Close ends the copies to this node, and comparisons of volumes here, and waits for them.
func (n *Node) Close(ctx context.Context) error {
	n.mu.Lock()
	n.ended = true
	for _, j := range n.copies {
		j.cancel()
	}
	n.mu.Unlock()
	n.stop()
	done := make(chan struct{})
	go func() {
		n.work.Wait()
		n.server.changes.work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Pauses between the attempts of one copy.
const (
	firstPause = time.Second
	lastPause  = time.Minute
)
