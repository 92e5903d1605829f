package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nodelvm/nodelvm/lvm"
)

// answerTime is longer than the limits of the client's transport together, whose errors say more.
const answerTime = 3 * time.Minute

// client asks one source for one volume.
type client struct {
	offer Offer
	claim string    // Request.Claim
	since string    // only what changed since this round; "": everything
	size  lvm.Bytes // of the source's device
	token func() (string, error)
	http  *http.Client

	changed *atomic.Int64 // how much the source says that changed, in bytes
}

func newClient(offer Offer, j *job, key identity, token func() (string, error)) (*client, error) {
	if host, port, err := net.SplitHostPort(offer.Address); err != nil || host == "" || port == "" || len(offer.Address) > 256 {
		return nil, lvm.Errorf(lvm.KindInvalid, "the source's address %q is none", offer.Address)
	}
	return &client{offer: offer, claim: j.claim, since: j.transfer.since, size: j.transfer.size, changed: &j.transfer.changed, token: token, http: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the source redirects") },
		Transport: &http.Transport{
			DialContext: dialing(net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}), TLSClientConfig: key.clientTLS(offer.Key),
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 2 * time.Minute, MaxResponseHeaderBytes: 16 << 10,
			DisableCompression: true, MaxIdleConns: 1, IdleConnTimeout: 5 * time.Second, Protocols: http1(),
		},
	}}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// get calls each for every chunk of a range, in order, and once for each part of it that did not change, with its last chunk. The frame's data is valid until each returns a buffer to free; it reads into the buffers that
// it takes from there. An error means that the range is incomplete, whatever each got.
func (c *client) get(ctx context.Context, chunks span, hashes bool, buffer func() []byte, each func(i int64, f frame, buffer []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q, err := c.query(chunks, hashes)
	if err != nil {
		return err
	}
	// The answer's start, or all of a refusal, has so long, and then one chunk. A source that sends byte after byte for hours would hold the
	// move back.
	slow := time.AfterFunc(answerTime, func() { cancel(fmt.Errorf("the source sent no whole chunk in %s", chunkTime)) })
	defer slow.Stop()
	body, err := c.request(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	frames := newFrames(body, hashes, c.since != "")
	for i := chunks.from; i < chunks.to; i++ {
		b := buffer()
		slow.Reset(chunkTime)
		f, err := frames.next(b, q.unit().lengthOf(c.size, i))
		slow.Stop()
		if err == nil && f.skip > chunks.to-i {
			err = fmt.Errorf("the source skips %d of %d chunks", f.skip, chunks.to-i)
		}
		if err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		i += max(0, f.skip-1)
		if err := each(i, f, b); err != nil {
			return err
		}
	}
	slow.Reset(chunkTime)
	return frames.end()
}

func (c *client) query(chunks span, hashes bool) (query, error) {
	id, err := lvm.ParseID(c.offer.Volume)
	return query{id: id, uuid: c.offer.UUID, move: c.offer.Move, claim: c.claim, since: c.since, span: chunks, hashes: hashes}, err
}

func (c *client) request(ctx context.Context, q query) (io.ReadCloser, error) {
	token, err := c.token()
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInternal, "cannot read this node's token for moves: %w", err)
	}
	u := url.URL{Scheme: "https", Host: c.offer.Address, Path: path, RawQuery: q.values().Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, lvm.Errorf(lvm.KindInvalid, "the offer is wrong: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := c.http.Do(r)
	if err != nil {
		if whole := (*url.Error)(nil); errors.As(err, &whole) {
			err = whole.Err // without the long URL
		}
		return nil, lvm.Errorf(lvm.KindBusy, "the source of the volume at %s does not answer: %w", c.offer.Address, err)
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode == http.StatusServiceUnavailable {
			return nil, busySource(answer.Body)
		}
		why, _ := io.ReadAll(io.LimitReader(answer.Body, 512)) // what came is enough
		return nil, lvm.Errorf(lvm.KindBusy, "the source of the volume answers %d: %q", answer.StatusCode, strings.TrimSpace(string(why)))
	}
	if n, err := strconv.ParseInt(answer.Header.Get(sizeHeader), 10, 64); err != nil || lvm.Bytes(n) < c.size {
		_ = answer.Body.Close()
		return nil, lvm.Errorf(lvm.KindConflict, "the source's device has %q bytes, and its offer says %d", answer.Header.Get(sizeHeader), c.size)
	}
	if n, err := strconv.ParseInt(answer.Header.Get(changedHeader), 10, 64); err == nil && n >= 0 && lvm.Bytes(n) <= c.size+lvm.Bytes(deltaSize) {
		c.changed.Store(n)
	}
	return answer.Body, nil
}

// deviceSize is how much of the source's logical volume is copied.
func (o Offer) deviceSize() lvm.Bytes { return o.Class.DeviceSize(o.Size) }
