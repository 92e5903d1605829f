package move

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// rounds is the engine's part for rounds; the methods are host.Host's.
type rounds interface {
	TakeRound(ctx context.Context, spec lvm.RoundSpec) (lvm.Round, error)
	Rounds(ctx context.Context) ([]lvm.Round, error)
	DropRound(ctx context.Context, id lvm.ID, uuid string) error
	DropUnneededRounds(ctx context.Context) error
	FitsPool(ctx context.Context, r lvm.Round) error
}

// newMove returns what identifies a hold or a round: no other one ever has it.
func newMove() string {
	var move [16]byte
	_, _ = rand.Read(move[:]) // it never fails
	return hex.EncodeToString(move[:])
}

// TakeRound is Source's.
func (n *Node) TakeRound(ctx context.Context, id lvm.ID, uuid string, number int, before lvm.Bytes) error {
	_, err := n.cfg.Engine.TakeRound(ctx, lvm.RoundSpec{Move: newMove(), Source: id, SourceUUID: uuid, Number: number, Before: before})
	return err
}

// OfferRound is Source's.
func (n *Node) OfferRound(ctx context.Context, v lvm.Volume, r lvm.Round) (Offer, error) {
	all, err := n.cfg.Engine.Rounds(ctx)
	if err != nil {
		return Offer{}, err
	}
	if r.Size != v.DeviceSize() {
		return Offer{}, lvm.Errorf(lvm.KindConflict, "round %d of volume %s has %s, and the volume has %s now", r.Number, v.ID, r.Size, v.DeviceSize())
	}
	offer := n.offer(v)
	offer.Move, offer.Round = r.Move, true
	if former := newestBefore(all, v, r.Number); former != nil {
		offer.Since = former.Move
		_, err = n.server.changes.of(ctx, n.cfg.Engine, query{id: v.ID, uuid: v.UUID, since: former.Move, move: r.Move})
	}
	return offer, err
}

// newestBefore returns the newest round of a volume with a lower number; nil: there is none.
func newestBefore(all []lvm.Round, v lvm.Volume, number int) (newest *lvm.Round) {
	for i := range all {
		r := &all[i]
		if r.Source == v.ID && r.SourceUUID == v.UUID && r.State != lvm.StateCreating && r.Number < number && (newest == nil || r.Number > newest.Number) {
			newest = r
		}
	}
	return newest
}

// sinceNewest returns the newest round of a held volume, if the engine can tell what changed since; else it removes the volume's rounds, which are of no
// use then: everything is copied.
func (n *Node) sinceNewest(ctx context.Context, v lvm.Volume) (string, error) {
	if v.Class.Layout != lvm.LayoutThin {
		return "", nil
	}
	all, err := n.cfg.Engine.Rounds(ctx)
	if err != nil {
		return "", err
	}
	const any = 1 << 30
	newest := newestBefore(all, v, any)
	if newest == nil {
		return "", nil
	}
	_, err = n.server.changes.of(ctx, n.cfg.Engine, query{id: v.ID, uuid: v.UUID, since: newest.Move, move: v.Move})
	switch {
	case err == nil:
		return newest.Move, nil
	case ctx.Err() != nil || errors.Is(err, ErrComparing):
		return "", err
	}
	n.cfg.Log.Warn("cannot tell what changed in a volume since it was copied; everything is copied again", "volume", v.ID.String(), "error", err)
	for i := range all {
		if r := all[i]; r.Source == v.ID {
			if err := n.DropRound(ctx, r); err != nil {
				n.cfg.Log.Warn("cannot remove a snapshot of a move; the driver retries", "lv", r.ID.String(), "error", err)
			}
		}
	}
	return "", nil
}

// DropRound is Source's. A removal waits for the end of comparisons, and goes on when its caller waits no longer.
func (n *Node) DropRound(ctx context.Context, r lvm.Round) error {
	ctx, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	if err := n.server.stop(ctx, r.Source); err != nil {
		return err
	}
	return n.cfg.Engine.DropRound(ctx, r.ID, r.UUID)
}

// DropUnneededRounds is Source's.
func (n *Node) DropUnneededRounds(ctx context.Context) error {
	unneeded, cancel := context.WithTimeout(ctx, compareWait) // as DropRound
	defer cancel()
	return errors.Join(n.cfg.Engine.DropUnneededRounds(unneeded), n.dropTooLargeRounds(ctx))
}

// dropTooLargeRounds removes the rounds of ready volumes whose pool has become too full. Those of a held volume do not grow.
func (n *Node) dropTooLargeRounds(ctx context.Context) error {
	all, err := n.cfg.Engine.Rounds(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	volumes, err := n.cfg.Engine.Moves(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, r := range all {
		grows := slices.ContainsFunc(volumes, func(v lvm.Volume) bool { return v.ID == r.Source && v.State == lvm.StateReady })
		if !grows {
			continue
		}
		switch why := n.cfg.Engine.FitsPool(ctx, r); {
		case lvm.KindOf(why) == lvm.KindInsufficientCapacity:
			n.cfg.Log.Warn("removing a snapshot of a move; the volume is copied after its pods have ended", "lv", r.ID.String(), "because", why)
			failures = append(failures, n.DropRound(ctx, r))
		case why != nil:
			failures = append(failures, why)
		}
	}
	return errors.Join(failures...)
}

// Rounds is Source's.
func (n *Node) Rounds(ctx context.Context) ([]lvm.Round, error) { return n.cfg.Engine.Rounds(ctx) }

// FitsPool is Source's.
func (n *Node) FitsPool(ctx context.Context, r lvm.Round) error {
	return n.cfg.Engine.FitsPool(ctx, r)
}

// maxCached bounds the memory for what changed, 2 MiB for each TiB of a volume, unless that of one volume is more. The agent asks for all volumes that move,
// again and again, and each comparison costs LVM commands.
const maxCached = 16 * lvm.MiB

// changesCache remembers what changed: a round never changes, nor does a volume while it is held, and each has its own name.
type changesCache struct {
	ended <-chan struct{} // ends the comparisons, which take longer than any request may; nil: nothing does

	mu      sync.Mutex
	known   map[query]*lvm.Changes
	running map[query]*comparison
	work    sync.WaitGroup
}

// comparison is one under way.
type comparison struct {
	begun time.Time
	done  chan struct{}
	found *lvm.Changes
	err   error
}

// compareWait is how long requests wait for a comparison after it began: until then it can answer at once. thin_delta reads all mappings of both
// volumes, one block after the other: on a rotating disk that can take many minutes, and the agent has other moves.
const compareWait = 10 * time.Second

// maxComparisons bounds those that are under way, or wait for another one to end: with a stolen node's token, a peer can ask for any number.
const maxComparisons = 256

// ErrComparing is in the chain of errors (lvm.KindBusy) of requests that need a comparison which is not complete: nothing is wrong.
var ErrComparing = errors.New("the driver compares it with its last snapshot for the move")

// of returns what changed since the round that a query names; nil: it names none.
func (c *changesCache) of(ctx context.Context, engine held, q query) (*lvm.Changes, error) {
	if q.since == "" {
		return nil, nil
	}
	key := query{id: q.id, uuid: q.uuid, since: q.since, move: q.move}
	c.mu.Lock()
	if found := c.known[key]; found != nil {
		c.mu.Unlock()
		return found, nil
	}
	r := c.running[key]
	if r == nil && len(c.running) < maxComparisons {
		r = c.start(ctx, engine, key)
	}
	c.mu.Unlock()
	if r == nil {
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s: %w", q.id, ErrComparing)
	}
	wait, cancel := context.WithDeadline(ctx, r.begun.Add(compareWait))
	defer cancel()
	select {
	case <-r.done:
		return r.found, r.err
	case <-wait.Done():
		return nil, lvm.Errorf(lvm.KindBusy, "volume %s: %w", q.id, ErrComparing)
	}
}

// start begins a comparison. The caller holds mu.
func (c *changesCache) start(ctx context.Context, engine held, key query) *comparison {
	ctx, end := context.WithCancel(context.WithoutCancel(ctx))
	c.work.Go(func() {
		defer end()
		select {
		case <-c.ended:
		case <-ctx.Done():
		}
	})
	if c.running == nil {
		c.running = map[query]*comparison{}
	}
	r := &comparison{begun: time.Now(), done: make(chan struct{})}
	c.running[key] = r
	c.work.Go(func() {
		defer end()
		r.found, r.err = engine.Changes(ctx, key.id, key.uuid, key.since, key.move)
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.running, key); r.err == nil {
			c.keep(key, r.found)
		}
		close(r.done)
	})
	return r
}

// keep remembers what changed. The caller holds mu.
func (c *changesCache) keep(key query, found *lvm.Changes) {
	if c.known == nil || c.size()+found.Memory() > maxCached {
		c.known = map[query]*lvm.Changes{}
	}
	c.known[key] = found
}

func (c *changesCache) size() (size lvm.Bytes) {
	for _, changes := range c.known {
		size += changes.Memory()
	}
	return size
}
