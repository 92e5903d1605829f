package move

import (
	"context"
	"errors"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// job is one copy to this node, over all its attempts. Node.mu guards its fields.
type job struct {
	volume   lvm.Volume
	offer    Offer  // what it copies
	claim    string // of a full copy
	transfer *transfer
	cancel   context.CancelFunc // of the attempt under way, or a function that does nothing
	done     chan struct{}      // closed when the attempt under way has ended; nil: none began
	running  bool
	received bool
	attempts int
	problem  error // of the former attempt, until this one has copied something
	began    lvm.Bytes
	again    time.Time // no attempt begins before

	rate     lvm.Bytes
	measured time.Time
	at       lvm.Bytes
}

// stop ends the attempt under way.
func (j *job) stop(ctx context.Context) error {
	j.cancel()
	if j.done == nil {
		return nil
	}
	select {
	case <-j.done:
		return nil
	case <-ctx.Done():
		return lvm.Errorf(lvm.KindBusy, "the copy of volume %s has not stopped yet; retry: %w", j.volume.ID, ctx.Err())
	}
}

// Receive is Target's.
func (n *Node) Receive(ctx context.Context, offer Offer, class lvm.Class) (Progress, error) {
	return n.receive(ctx, offer, "", lvm.Spec{Name: offer.Name, Claim: offer.Claim, Class: class, Required: offer.Size, Block: offer.Block, Limits: offer.Limits})
}

// receive is Receive for a volume with this spec. claim is that of a full copy.
func (n *Node) receive(ctx context.Context, offer Offer, claim string, spec lvm.Spec) (Progress, error) {
	j, err := n.jobFor(ctx, offer, claim, spec)
	if err != nil {
		return Progress{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.copies[spec.Name] == j && !j.running && !j.received && !n.ended && time.Now().After(j.again) {
		if queue := n.queue(j); queue != nil {
			j.problem = queue
		} else {
			n.start(ctx, j, offer)
		}
	}
	return n.progress(j), nil
}

// jobFor finds the job of an offer, or ends the one that copied something else to the volume of that name, and creates one.
func (n *Node) jobFor(ctx context.Context, offer Offer, claim string, spec lvm.Spec) (*job, error) {
	n.mu.Lock()
	j := n.copies[spec.Name]
	n.mu.Unlock()
	if j != nil && j.isOf(offer, claim) {
		return j, nil
	}
	if err := n.forget(ctx, func(other *job) bool { return other.volume.Name == spec.Name }); err != nil {
		return nil, err
	}
	j, err := n.newJob(ctx, offer, claim, spec)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.copies[spec.Name] != nil {
		return nil, lvm.Errorf(lvm.KindBusy, "another request to copy volume %q to this node is under way; retry", spec.Name)
	}
	n.copies[spec.Name] = j
	return j, nil
}

// isOf reports whether a job copies what an offer says. Another source can write any offer, also one with the move of this job. Only where its source serves
// the volume may change meanwhile.
func (j *job) isOf(offer Offer, claim string) bool {
	offer.Address, offer.Key = j.offer.Address, j.offer.Key
	return offer == j.offer && claim == j.claim
}

// forget ends these copies.
func (n *Node) forget(ctx context.Context, is func(*job) bool) error {
	n.mu.Lock()
	var former []*job
	for name, j := range n.copies {
		if is(j) {
			former = append(former, j)
			delete(n.copies, name)
		}
	}
	n.mu.Unlock()
	for _, j := range former {
		if err := j.stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// newJob creates the logical volume, or finds it.
func (n *Node) newJob(ctx context.Context, offer Offer, claim string, spec lvm.Spec) (*job, error) {
	if class := spec.Class; class.Layout != offer.Class.Layout || class.Encryption != offer.Class.Encryption {
		return nil, lvm.Errorf(lvm.KindInvalid, "volume %q is %s, %s, and cannot become %s, %s by its copy", spec.Name,
			offer.Class.Layout, offer.Class.Encryption.Description(), class.Layout, class.Encryption.Description())
	}
	v, err := n.cfg.Engine.Receive(ctx, lvm.Incoming{Spec: spec, Move: offer.Move, Since: offer.Since, FormatMark: offer.FormatMark})
	if err != nil {
		return nil, err
	}
	received := v.State != lvm.StateReceiving || v.Base == v.Move
	j := &job{volume: v, offer: offer, claim: claim, transfer: newTransfer(n.cfg.Engine, v, offer, &n.limit), cancel: func() {}, received: received}
	if j.received {
		j.transfer.next.Store(j.transfer.total)
	}
	return j, nil
}

// start begins an attempt, which outlives the caller's request. The caller holds mu.
func (n *Node) start(ctx context.Context, j *job, offer Offer) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	j.cancel, j.done, j.running = cancel, make(chan struct{}), true
	j.attempts++
	j.began = j.transfer.copied()
	j.measured, j.at, j.rate = time.Now(), j.began, 0
	began, start := j.began, j.measured
	n.work.Go(func() {
		defer cancel()
		arrived, err := n.attempt(ctx, j, offer)
		copied, took := int64(j.transfer.copied()-began), time.Since(start)
		n.endAttempt(j, arrived, err)
		if err != nil {
			return
		}
		n.cfg.Log.Info("copied a volume to this node", "volume", arrived.ID.String(), "bytes", copied, "took", took)
		if j.claim == "" {
			n.cfg.Copied(arrived.Name)
		}
	})
}

func (n *Node) endAttempt(j *job, arrived lvm.Volume, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer close(j.done)
	j.running, j.problem, j.received = false, err, err == nil
	if err == nil {
		j.volume = arrived
		return
	}
	if lvm.KindOf(err) == lvm.KindNotFound && n.copies[j.volume.Name] == j {
		delete(n.copies, j.volume.Name) // its volume was removed: the next request creates one
	}
	if _, waits := errors.AsType[*Queue](err); waits {
		j.attempts--
		j.again = time.Now().Add(queuePause)
		return
	}
	j.again = time.Now().Add(min(lastPause, firstPause<<min(j.attempts-1, 6)))
	n.cfg.Log.Warn("cannot copy a volume to this node yet; the driver retries", "volume", j.volume.ID.String(), "done", j.transfer.done().String(), "error", err)
}

func (n *Node) attempt(ctx context.Context, j *job, offer Offer) (lvm.Volume, error) {
	c, err := newClient(offer, j, n.key, n.cfg.Token)
	if err != nil {
		return lvm.Volume{}, err
	}
	defer c.close()
	return j.transfer.run(ctx, c)
}

// progress describes a copy. The caller holds mu.
func (n *Node) progress(j *job) Progress {
	p := Progress{Volume: j.volume, Running: j.running, Done: j.transfer.copied(), Total: j.transfer.all(), Problem: j.problem, Attempts: j.attempts}
	if j.running {
		if p.Done > j.began {
			j.problem, p.Problem = nil, nil
		}
		if since := time.Since(j.measured); since >= 2*time.Second {
			j.rate = lvm.Bytes(float64(p.Done-j.at) / since.Seconds())
			j.measured, j.at = time.Now(), p.Done
		}
		p.PerSec = j.rate
	}
	return p
}
